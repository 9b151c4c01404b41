"""Near a balanced network with one output on white inputs: products, gradients, curvature.

With N balanced layers and the product w every layer has the norm |w|^{1/N}. Weights within
r <= 1 / (2 N) of them have layers of norm |w|^{1/N} + r at most, hence products close to w, and
all that elkabetz2021 knows about balanced networks stays true nearby up to terms of order N r.
"""

from dataclasses import dataclass
from math import inf, log, sqrt
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._typing import Weights
from thalweg.certificates import AbstractTheorem, Claim, Magnitude, requirement, rounding
from thalweg.certificates.trajectories import apart
from thalweg.curvature import ball_bounds, linear_hessian
from thalweg.curvature.products import largest_product
from thalweg.dynamics.exact import one_output_weights
from thalweg.initialisation import nearest_balanced
from thalweg.measurement import layer_norms, unbalancedness
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import TargetMatrix
from thalweg.theorems.settings.one_output import (
    EXACT,
    OneOutputTraining,
    Vector,
    balance_claim,
    ray_between,
)
from thalweg.theorems.settings.ray import Ray

_TIMES = 24  # along an exact flow
_LAST_GAP = 1e-3  # until which the exact flow is looked at


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Balanced weights, weights near them, and the target of both."""

    weights: Weights
    nearby: Weights
    target: Vector

    @property
    def distance(self) -> float:
        """|nearby - weights|."""
        return apart(self.weights, self.nearby)

    @property
    def objective(self) -> Objective:
        """Of a network of these widths, on white inputs."""
        widths = [np.shape(self.weights[0])[1], *(np.shape(layer)[0] for layer in self.weights)]
        return Objective(LinearNetwork(widths), TargetMatrix(self.target))


class BalancedNeighbourhood(AbstractTheorem[Neighbours]):
    """Near balanced weights the product, the gradient and the curvature are near theirs.

    For balanced weights with product |w| <= 1, |target| = 1, and weights within r <= 1 / (2 N) of
    them, with product w_r and layers V_j,

        (|w|^{1/N} + r)^N <= |w| + 2 N r,
        |w_r - w| <= (|w|^{1/N} + r)^N - |w|,
        |w_r - target| <= |w - target| + 2 N r,
        any product of k of the |V_j|_F <= (|w| + 2 N r)^{k/N},
        -lambda_min(H(V)) <= (N - 1) (|w - target| + 2 N r) (|w| + 2 N r)^{1 - 2/N},
        |H(V)| <= 16 N,    |grad f(V)| <= 6 sqrt(N).

    Instead of 16 N, N 2^{2 - 2/N} + 3 (N - 1) 2^{1 - 2/N} would do (ours).
    """

    reference: ClassVar[str] = "elkabetz2021:lem61"

    @override
    def assumptions(self, subject: Neighbours, /) -> tuple[Claim, ...]:
        one = np.shape(subject.weights[-1])[0] == 1
        claims = (
            requirement("the network has one output", one),
            Claim("2 <= depth", 2, len(subject.weights)),
            balance_claim(subject.weights),
        )
        if any(claim.fails for claim in claims):
            return claims
        ray, most = _ray(subject.weights, subject.target), 1 / (2 * len(subject.weights))
        unit = abs(float(np.linalg.norm(subject.target)) - 1)
        return (
            *claims,
            Claim("||target| - 1| <= 1e-10", unit, EXACT),
            Claim("|w| <= 1", ray.norm, 1.0),
            Claim("r <= 1 / (2 N)", subject.distance, most),
        )

    @override
    def conclusions(self, subject: Neighbours, /) -> tuple[Claim, ...]:
        n, r, objective = len(subject.weights), subject.distance, subject.objective
        product, moved = (_product(each) for each in (subject.weights, subject.nearby))
        size = float(np.linalg.norm(product))
        reach, slack = (size ** (1 / n) + r) ** n, rounding(4.0) + 1e-9 * size
        found = _at(objective, tuple(jnp.asarray(layer) for layer in subject.nearby))
        values, slope, most = (np.asarray(each) for each in found)
        allowed = [(size + 2 * n * r) ** (k / n) for k in range(1, n + 1)]
        away, moved_away = (np.linalg.norm(w - subject.target) for w in (product, moved))
        curvature = growth_near(n, size, float(away), r)
        change = np.linalg.norm(moved - product)
        return (
            Claim("(|w|^(1/N) + r)^N <= |w| + 2 N r", reach, size + 2 * n * r, slack),
            Claim("|w_r - w| <= (|w|^(1/N) + r)^N - |w|", change, reach - size, slack),
            Claim("|w_r - target| <= |w - target| + 2 N r", moved_away, away + 2 * n * r, slack),
            Claim(
                "product of k of the |V_j|_F <= (|w| + 2 N r)^(k/N)", most, np.array(allowed), slack
            ),
            Claim("-lambda_min(H) <= m", -values[0], curvature, slack),
            Claim("|H| <= 16 N", float(np.max(np.abs(values))), 16.0 * n),
            Claim("|grad f| <= 6 sqrt(N)", slope, 6 * sqrt(n)),
        )


def growth_near(depth: int, norm: float, away: float, radius: float) -> float:
    """The m of a product of this norm and distance to a unit target (elkabetz2021:eq71)."""
    reach = 2 * depth * radius
    return (depth - 1) * (away + reach) * (norm + reach) ** (1 - 2 / depth)


class NearbyProduct(AbstractTheorem[Neighbours]):
    """The balanced weights near nearly balanced ones have nearly the same product.

    The subject's `weights` are nearly balanced, e is their unbalancedness, x = sqrt(N^5 e), and
    `nearby` those of `initialisation.nearest_balanced`; the hat marks the latter. Where x < 1,

        |w - w^| <= max{1, |w^|} x / (1 - x).

    If moreover |w| <= 0.1 |target| and x / (1 - x) <= |w| a / (1 + a), with a = 1/2 for nu >= 0 and
    a = (1 - |nu|) / (2 (1 + |nu|)) for nu < 0, then

        |w - w^| <= |w| / 3,    1 / |w^| <= 3 / (2 |w|),
        nu^ >= min{-1/2, sign(nu) (|nu| + 1) / 2},
        max{1, (1 - nu^) / (1 + nu^)} <= max{3, (3 - nu) / (1 + nu)}.

    The assumption on x is ours, and all that the proof uses; the paper's, on e, implies it and is
    never met in floating point. The paper's intermediate |w - w^| <= |w^| x / (1 - x) is false.
    """

    reference: ClassVar[str] = "elkabetz2021:lem88"

    @override
    def assumptions(self, subject: Neighbours, /) -> tuple[Claim, ...]:
        one = np.shape(subject.weights[-1])[0] == 1
        output = requirement("the network has one output", one)
        if not one:
            return (output,)
        ray, x = _ray(subject.weights, subject.target), _excess(subject)
        a = 0.5 if ray.cosine >= 0 else (1 + ray.cosine) / (2 * (1 - ray.cosine))
        most = ray.norm * a / (1 + a)
        return (
            output,
            requirement("the product is not zero", ray.norm > 0),
            Claim("|w| / |target| <= 0.1", ray.norm, 0.1),
            Claim("x / (1 - x) <= |w| a / (1 + a) / |target|", x / (1 - x) if x < 1 else inf, most),
        )

    @override
    def conclusions(self, subject: Neighbours, /) -> tuple[Claim, ...]:
        x, hats = _excess(subject), nearest_balanced(subject.weights)
        ray, hat = (_ray(each, subject.target) for each in (subject.weights, hats))
        unit = float(np.linalg.norm(subject.target))
        change = float(np.linalg.norm(_product(subject.weights) - _product(hats))) / unit
        slack, inverse, units = rounding(ray.norm), rounding(1 / ray.norm), "in units of |target|"
        turned = min(-0.5, np.sign(ray.cosine) * (abs(ray.cosine) + 1) / 2)
        most = max(3.0, (3 - ray.cosine) / (1 + ray.cosine))
        limit = max(1.0, hat.norm) * x / (1 - x)
        return (
            Claim(f"|w - w^| <= max{{1, |w^|}} x / (1 - x), {units}", change, limit, slack),
            Claim(f"|w - w^| <= |w| / 3, {units}", change, ray.norm / 3, slack),
            Claim(f"1 / |w^| <= 3 / (2 |w|), {units}", 1 / hat.norm, 1.5 / ray.norm, inverse),
            Claim("min{-1/2, sign(nu) (|nu| + 1) / 2} <= nu^", turned, hat.cosine, rounding(1.0)),
            Claim(
                "max{1, (1 - nu^) / (1 + nu^)} <= max{3, (3 - nu) / (1 + nu)}",
                max(1.0, hat.opposition),
                most,
                rounding(most),
            ),
        )


def tube_claims(training: OneOutputTraining) -> tuple[Claim, ...]:
    """Prop. 14's constants on balls around the exact flow, against sharper ones."""
    case, ray, target = training.case, training.ray, training.target
    n, unit = ray.depth, float(np.linalg.norm(target)) ** (1 / ray.depth)
    largest = 1 / (2 * n)
    radius = largest if case.radius is None else min(case.radius / unit, largest)
    end = ray.elapsed(ray.total_time(_LAST_GAP))
    times = np.linspace(0.0, end, _TIMES)
    layers = [np.asarray(layer) / unit for layer in case.weights]
    points = one_output_weights(layers, target / unit**n, times)
    objective = Objective(training.network, TargetMatrix(target[None] / unit**n))
    found = np.asarray(_ball_constants(objective, points, jnp.asarray(radius)))
    products = [_product(tuple(array[k] for array in points)) for k in range(_TIMES)]
    sizes = [float(np.linalg.norm(w)) for w in products]
    away = [float(np.linalg.norm(w - target / unit**n)) for w in products]
    growth = [growth_near(n, *pair, radius) for pair in zip(sizes, away, strict=True)]
    slack = 1e-9 * n  # of the closed form
    total = Magnitude.of(growth_integral(ray, radius))
    return (
        Claim("|H| on the balls <= 16 N", found[0], 16.0 * n, slack),
        Claim("|grad f| on the balls <= 6 sqrt(N)", found[1], 6 * sqrt(n), slack),
        Claim("-lambda_min(H) on the balls <= m", found[2], np.array(growth), slack),
        Claim("integral of m <= the bound of (22)", total, growth_bound(ray, radius, end)),
    )


def growth_integral(ray: Ray, radius: float, gap: float = _LAST_GAP) -> float:
    """The integral of prop. 14's m along the exact flow until the gap is met, in tau."""
    n, power = ray.depth, 1 - 2 / ray.depth

    def integrand(tau: float) -> float:
        norm, away = ray.norm_at(tau), sqrt(2 * ray.gap_at(tau))
        return growth_near(n, norm, away, radius) * norm**-power

    end, turn = ray.total_time(gap), ray.turning_time
    parts = [(0.0, turn), (turn, end)]
    return sum(
        scipy.integrate.quad(integrand, *part, epsabs=0, epsrel=1e-9, limit=200)[0]
        for part in parts
    )


def growth_bound(ray: Ray, radius: float, time: float) -> Magnitude:
    """Prop. 14's bound on the integral of m up to a time (elkabetz2021:eq22)."""
    n, rho = ray.depth, ray.opposition
    linear = Magnitude.of(max(1.0, 1.5 * rho)) ** n * (15 * n**3 * time * radius / ray.norm)
    return linear + 2 * log(n / ray.norm) + 2.5 * (n - 1) * (2 + log(max(1.0, rho)))


@eqx.filter_jit
def _ball_constants(
    objective: Objective, points: Weights, radius: Float[Array, ""]
) -> Float[Array, "3 points"]:
    """The Hessian's norm, the gradient's and minus the least eigenvalue, above, on each ball."""

    def on(centre: Weights) -> Array:
        bounds = ball_bounds(objective, centre, radius)
        return jnp.stack([bounds.hessian, bounds.gradient, -bounds.smallest_eigenvalue])

    return jax.lax.map(on, tuple(jnp.asarray(array) for array in points)).T


@eqx.filter_jit
def _at(
    objective: Objective, weights: Weights
) -> tuple[Float[Array, " size"], Float[Array, ""], Float[Array, " depth"]]:
    """The eigenvalues, the gradient's norm, and the largest products of 1, 2, ... layers' norms."""
    norms = layer_norms(weights)
    products = [largest_product(norms, count + 1) for count in range(len(weights))]
    slope = jnp.sqrt(sum(jnp.sum(part**2) for part in objective.gradient(weights)))
    values = jnp.linalg.eigvalsh(linear_hessian(objective, weights))
    return values, slope, jnp.stack(products)


def _product(weights: Weights) -> Vector:
    product = np.eye(1)
    for layer in reversed(weights):
        product = product @ np.asarray(layer)
    return product.ravel()


def _ray(weights: Weights, target: Vector) -> Ray:
    return ray_between(_product(weights), target, len(weights))


def _excess(subject: Neighbours) -> float:
    """X = sqrt(N^5 e) of `NearbyProduct`, in units in which the target has the norm one."""
    depth, unit = len(subject.weights), float(np.linalg.norm(subject.target))
    return sqrt(depth**5 * float(unbalancedness(subject.weights)) / unit ** (2 / depth))
