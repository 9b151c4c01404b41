"""Any differentiable map of (weights, samples), for what the other networks do not cover."""

from collections.abc import Callable, Sequence

import equinox as eqx
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import require_count
from thalweg._typing import Weights
from thalweg.network.base import AbstractNetwork


class Model(AbstractNetwork):
    """A network given by a JAX function `apply(weights, x)` with samples and outputs as rows."""

    apply: Callable[[Weights, Array], Array] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    features: int | None = eqx.field(static=True)
    outputs: int | None = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        apply: Callable[[Weights, Array], Array],
        shapes: Sequence[Sequence[int]],
        features: int | None = None,
        outputs: int | None = None,
        smooth: bool = True,
    ):
        """Take the function, its weights' shapes, its widths (to be checked), and its smoothness.

        A function with kinks, such as one with ReLU or max pooling, is to be given `smooth=False`.
        """
        self.apply = apply
        self.shapes = tuple(
            tuple(require_count(f"shapes[{i}]", width) for width in shape)
            for i, shape in enumerate(shapes)
        )
        self.features = features
        self.outputs = outputs
        self.smooth = smooth

    @checked
    @override
    def __call__(
        self, weights: Weights, x: Float[Array, "samples features"]
    ) -> Float[Array, "samples outputs"]:
        return self.apply(weights, x)
