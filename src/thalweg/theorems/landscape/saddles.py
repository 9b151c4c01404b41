"""Weights at which a deep network's loss curves down as sharply as one likes.

With three layers the smallest Hessian eigenvalue is unbounded below over all weights, so that no
single number bounds it: what bounds there are must look at the norms of the layers
(`smallest_eigenvalue`). Two constructions show it, both with a direction d in which the loss
curves down:

    sharp      only one entry of each layer is not zero, and <d, H d> = -c |d|^2 exactly
    rescaled   any weights that move the loss at zero output, with two layers made small and one
               large; then <d, H d> falls linearly in the factor

The starts themselves are in `adversarial`.
"""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike
from typing_extensions import override

from thalweg._checks import require_positive
from thalweg._typing import Scalar, Weights
from thalweg.adversarial import Saddle, rescaled_saddle, sharp_saddle
from thalweg.certificates import AbstractTheorem, Claim, requirement, rounding
from thalweg.certificates.points import regular_points
from thalweg.curvature import linear_form, region_form, smallest_eigenvalue
from thalweg.curvature.products import linear_network
from thalweg.objective import Objective

_LARGEST_FACTOR = 2.0**60  # the third power of larger ones comes near the end of floating point


@dataclass(frozen=True, eq=False)
class WantedCurvature:
    """How sharply an objective is to curve down, and weights to begin the search with.

    Args:
        objective: the network on its problem.
        curvature: c, where an eigenvalue of -c or less is wanted.
        weights: what is rescaled; the sharp saddle needs none.
    """

    objective: Objective
    curvature: float
    weights: Weights = ()

    def __post_init__(self):
        require_positive("curvature", self.curvature)


class SharpSaddle(AbstractTheorem[WantedCurvature]):
    """The curvature of a linear network with three layers or more is unbounded below.

    If the loss has a gradient at the zero predictor that is not zero, then for every c > 0 there
    are weights and a direction d with

        <d, H d> = -c |d|^2,    hence lambda_min(H) <= -c,

    those of `adversarial.sharp_saddle`. Weight decay adds itself to the eigenvalue.
    """

    reference: ClassVar[str] = "elkabetz2021:prop6"

    @override
    def assumptions(self, subject: WantedCurvature, /) -> tuple[Claim, ...]:
        network, problem = subject.objective.network.linear, subject.objective.problem
        linear = requirement("the network is linear", network is not None)
        if network is None:
            return (linear,)
        slopes = np.asarray(
            problem.output_gradient(jnp.zeros((len(problem.inputs), problem.shape[0])))
        )
        sizes = np.linalg.norm(slopes, axis=1) * np.linalg.norm(problem.inputs, axis=1)
        slope = problem.gradient(jnp.zeros(problem.shape))
        slope = slope if network.readout is None else network.readout @ slope
        return (
            linear,
            _has_three_layers(subject),
            _is_not_zero("max |grad phi(0)|", np.max(np.abs(slope)), float(np.sum(sizes))),
        )

    @override
    def conclusions(self, subject: WantedCurvature, /) -> tuple[Claim, ...]:
        saddle, form = _sharp(subject.objective, jnp.asarray(subject.curvature))
        form = float(form)
        wanted = (float(subject.objective.weight_decay) - subject.curvature) * _square(saddle)
        wish = "(weight decay - c)" if float(subject.objective.weight_decay) else "-c"
        return (
            Claim(f"<d, H d> <= {wish} |d|^2", form, wanted, rounding(wanted)),
            Claim(f"{wish} |d|^2 <= <d, H d>", wanted, form, rounding(wanted)),
            _below(subject, saddle, wanted / _square(saddle), f"lambda_min(H) <= {wish}"),
        )


class RescaledSaddle(AbstractTheorem[WantedCurvature]):
    """The curvature of a homogeneous network with three layers or more is unbounded below.

    For weights with outputs h_i such that s = sum_i <l_i'(0), h_i> is not zero, and where no
    pre-activation is, `adversarial.rescaled_saddle` by the factor a has a direction d with

        <d, H d> = (4 / a^2) mean_i l_i''[h_i, h_i] + 2 a mean_i <l_i', h_i>,

    derivatives taken at h_i / a^3. It falls like 2 a mean_i <l_i'(0), h_i>, where the last layer's
    sign makes that negative; so for every c > 0 some a gives lambda_min(H) <= -c. Here a is the
    first power of two that does, starting from one. For full matrices (prop. 10) and shared weights
    (prop. 22). Weight decay adds itself to the eigenvalue.
    """

    reference: ClassVar[str] = "elkabetz2021:prop10"

    @override
    def assumptions(self, subject: WantedCurvature, /) -> tuple[Claim, ...]:
        network = subject.objective.network
        known = network.linear is not None or network.layered is not None
        claims = [requirement("the network is linear or a (leaky-)ReLU network", known)]
        if not known:
            return tuple(claims)
        claims.append(_has_three_layers(subject))
        network.check(subject.weights)
        if network.linear is None:
            point = tuple(jnp.asarray(each)[None] for each in subject.weights)
            regular = bool(regular_points(subject.objective, point)[0])
            claims.append(requirement("no pre-activation that can change is zero", regular))
        terms = np.asarray(_agreements(subject.objective, subject.weights))
        total = float(abs(np.sum(terms)))
        claims.append(_is_not_zero("|mean <l_i'(0), h_i>|", total, float(np.sum(np.abs(terms)))))
        return tuple(claims)

    @override
    def conclusions(self, subject: WantedCurvature, /) -> tuple[Claim, ...]:
        objective = subject.objective
        factor = self.factor(subject)
        saddle, form = _rescaled(objective, subject.weights, jnp.asarray(factor))
        form, expected = float(form), self.form(subject, factor)
        # The weights are rounded three times, and the outputs sum over the widths.
        slack = rounding(expected, units=4096.0)
        quotient = expected / _square(saddle)
        return (
            Claim("<d, H d> <= the closed form", form, expected, slack),
            Claim("the closed form <= <d, H d>", expected, form, slack),
            Claim(
                "the closed form / |d|^2 <= -c", quotient, -subject.curvature, rounding(quotient)
            ),
            _below(subject, saddle, quotient, "lambda_min(H) <= the closed form / |d|^2"),
        )

    def factor(self, subject: WantedCurvature) -> float:
        """The first power of two for which the quotient is what is wanted."""
        length = sum(float(np.sum(np.asarray(each) ** 2)) for each in subject.weights[:2])
        factor = 1.0
        while factor < _LARGEST_FACTOR:
            if self.form(subject, factor) <= -subject.curvature * length:
                break
            factor *= 2
        return factor

    def form(self, subject: WantedCurvature, factor: float) -> float:
        """<d, H d> for a factor, in closed form."""
        return float(_rescaled_form(subject.objective, subject.weights, jnp.asarray(factor)))


def rescaled_form(objective: Objective, weights: Weights, factor: ScalarLike) -> Scalar:
    """<d, H d> of `adversarial.rescaled_saddle` in closed form, from the outputs alone."""
    problem, factor = objective.problem, jnp.asarray(factor)
    arrays = tuple(jnp.asarray(array) for array in weights)
    outputs = objective.network(arrays, problem.inputs)
    outputs = -jnp.sign(jnp.sum(_agreements(objective, arrays))) * outputs
    small = outputs / factor**3
    curved = jnp.sum(outputs * problem.output_hessian_action(small, outputs))
    falling = jnp.sum(problem.output_gradient(small) * outputs)
    length = sum((jnp.sum(array**2) for array in arrays[:2]), start=jnp.zeros(()))
    return 4 / factor**2 * curved + 2 * factor * falling + objective.weight_decay * length


_rescaled_form = eqx.filter_jit(rescaled_form)


@eqx.filter_jit
def _agreements(objective: Objective, weights: Weights) -> Float[Array, "samples outputs"]:
    """The terms of mean_i <l_i'(0), h_i>."""
    problem = objective.problem
    outputs = objective.network(tuple(jnp.asarray(each) for each in weights), problem.inputs)
    return problem.output_gradient(jnp.zeros_like(outputs)) * outputs


@eqx.filter_jit
def _sharp(objective: Objective, curvature: Scalar) -> tuple[Saddle, Scalar]:
    network = linear_network(objective, "`sharp_saddle`")
    saddle = sharp_saddle(network, objective.problem, curvature)
    return saddle, linear_form(objective, *saddle)


@eqx.filter_jit
def _rescaled(objective: Objective, weights: Weights, factor: Scalar) -> tuple[Saddle, Scalar]:
    saddle = rescaled_saddle(objective.network, objective.problem, weights, factor)
    linear = objective.network.linear is not None
    return saddle, (linear_form if linear else region_form)(objective, *saddle)


def _has_three_layers(subject: WantedCurvature) -> Claim:
    return Claim("3 <= N", 3.0, float(subject.objective.network.depth))


def _is_not_zero(what: str, value: float | np.floating, terms: float) -> Claim:
    """The claim that a sum of terms of this size in all is not zero beyond rounding."""
    least = max(float(rounding(terms)), float(np.finfo(float).tiny))
    return Claim(f"rounding <= {what}", least, float(value))


def _square(saddle: Saddle) -> float:
    return sum(float(jnp.sum(jnp.asarray(each) ** 2)) for each in saddle.direction)


def _below(subject: WantedCurvature, saddle: Saddle, bound: float, statement: str) -> Claim:
    found = smallest_eigenvalue(subject.objective, saddle.weights)
    return Claim(statement, found.value, bound, found.error + rounding(bound))
