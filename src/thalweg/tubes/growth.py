"""How far the exact flow can get from a computed curve during one step of descent.

Let theta_k be the iterates of descent with learning rate eta, g and H the gradient and the Hessian
at theta_k, and c_k a correction that is carried along,

    c_{k+1} = (I - eta H) c_k + eta^2 / 2 H g.

The curve z(s) = theta_k - s g + s^2 / 2 H g + (I - s H) c_k, 0 <= s <= eta, runs from
theta_k + c_k to theta_{k+1} + c_{k+1}. Put x = z - theta_k. By Taylor's formula it has the defect

    z' + grad f(z) = s^2 / 2 H^2 g - s H^2 c_k + rest,    |rest| <= L / 2 |x|^2,

L bounding how fast the Hessian changes near theta_k. With C = |c_k| and
G = |g| + eta / 2 |H g| + |H c_k| we have |x| <= C + s G, so that the defect is at most

    delta(s) = q0 + q1 s + q2 s^2 / 2,
    q0 = L C^2 / 2,    q1 = |H^2 c_k| + L C G,    q2 = |H^2 g| + L G^2.

The distance e = |theta - z| of the flow theta obeys, for almost all times,

    e' <= M e + delta,    M = integral over 0 <= u <= 1 of -lambda_min(H(z + u (theta - z))) du,

because (e^2 / 2)' = -<d, grad f(z + d) - grad f(z)> - <d, z' + grad f(z)> with d = theta - z. Only
the segment between the two enters, and it is within |x| + u e of theta_k. So as long as e < b,

    M <= m(s) = -lambda_min(H) + L (C + s G + b / 2),

where L now holds on the ball of radius C + eta G + b around theta_k; or the same with bounds on the
eigenvalues by norms, which also fall linearly with the distance. m increases with s. If then, with
m1 = max(0, m(eta)),

    exp(m1 eta) r + q0 eta phi_1 + q1 eta^2 phi_2 + q2 eta^3 phi_3 < b,    phi_j = phi_j(m1 eta),

for r >= e at the beginning of the step, e never reaches b on the way: the left side bounds it for
as long as it has not. Nothing about the flow is presupposed. At the end of the step e is at most

    exp(integral of m) r + q0 eta phi_1 + q1 eta^2 phi_2 + q2 eta^3 phi_3.

For phi_j see `thalweg._phi`.

Without the correction (c = 0 throughout, and z(s) = theta_k - s g) the same holds with q0 = 0,
q1 = |H g| and q2 = L |g|^2.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from thalweg._phi import first_phis
from thalweg._typing import Scalar
from thalweg.curvature.balls import BallCentre
from thalweg.curvature.sample_balls import JointCentre, SampleCentre

Centre = BallCentre | SampleCentre | JointCentre
"""What bounds the derivatives on balls around a point."""

_ATTEMPTS = 60
_ROOM = 1.02  # how far above its bound the next guess of b lies
_LARGEST = 1e6  # the bound has diverged above this


class Defect(eqx.Module):
    """delta(s) = constant + linear s + quadratic s^2 / 2, and |x| <= offset + s speed."""

    constant: Scalar
    linear: Scalar
    quadratic: Scalar
    offset: Scalar
    speed: Scalar

    def at(self, time: Scalar) -> Scalar:
        """Its value after this time of the step."""
        return self.constant + self.linear * time + self.quadratic * time**2 / 2


class Growth(eqx.Module):
    """What one step makes of a radius.

    `radius` holds at the end of the step, `largest` during all of it; both are infinite where no
    bound was found. `curvature` is what the eigenvalues were bounded by from below, on average.
    """

    radius: Scalar
    largest: Scalar
    curvature: Scalar


def grow(centre: Centre, smallest: Scalar, defect: Defect, radius: Scalar, rate: Scalar) -> Growth:
    """The radius after one step, by the argument above.

    Args:
        centre: the balls around theta_k.
        smallest: a lower bound on the smallest eigenvalue of H; -inf where none is known.
        defect: of the curve.
        radius: what e is at most at the beginning of the step.
        rate: the length of the step.
    """

    def attempt(guess: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        ball = centre.bounds(defect.offset + rate * defect.speed + guess)

        def exponent(time: Scalar) -> Scalar:
            away = defect.offset + time * defect.speed + guess / 2
            by_norms = ball.central_eigenvalue - ball.eigenvalue_slope * away
            return -jnp.maximum(smallest - ball.hessian_lipschitz * away, by_norms)

        steepest, mean = jnp.maximum(exponent(rate), 0.0), exponent(rate / 2)
        one, two, three = first_phis(steepest * rate)
        added = (
            defect.constant * rate * one
            + defect.linear * rate**2 * two
            + defect.quadratic * rate**3 * three
        )
        return (
            jnp.exp(steepest * rate) * radius + added,
            jnp.exp(mean * rate) * radius + added,
            mean,
        )

    def unproven(carry: tuple[Array, Scalar, tuple[Scalar, Scalar, Scalar]]) -> Array:
        count, guess, (reached, _, _) = carry
        return ~(reached < guess) & (guess < _LARGEST) & (count < _ATTEMPTS)

    def enlarge(
        carry: tuple[Array, Scalar, tuple[Scalar, Scalar, Scalar]],
    ) -> tuple[Array, Scalar, tuple[Scalar, Scalar, Scalar]]:
        count, _, (reached, _, _) = carry
        guess = _ROOM * reached
        return count + 1, guess, attempt(guess)

    first = _ROOM * (radius + defect.at(rate) * rate) + jnp.finfo(radius.dtype).tiny
    start = (jnp.asarray(0), first, attempt(first))
    _, guess, (reached, after, mean) = jax.lax.while_loop(unproven, enlarge, start)
    proven = reached < guess
    return Growth(jnp.where(proven, after, jnp.inf), jnp.where(proven, reached, jnp.inf), -mean)
