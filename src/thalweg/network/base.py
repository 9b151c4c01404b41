"""What all networks share: a parametrised map with weights in a plain tuple of arrays."""

from abc import abstractmethod
from math import prod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from thalweg._checks import require_shapes
from thalweg._shown import shown
from thalweg._typing import Weights


@shown
class AbstractNetwork(eqx.Module):
    """A map x -> network(weights, x), applied to samples given as rows.

    `shapes` are those of the weights, first layer first; `features` and `outputs` count the numbers
    that the map takes in and puts out (None where it cannot know).
    """

    shapes: eqx.AbstractVar[tuple[tuple[int, ...], ...]]
    features: eqx.AbstractVar[int | None]
    outputs: eqx.AbstractVar[int | None]

    @abstractmethod
    def __call__(
        self, weights: Weights, x: Float[Array, "samples features"]
    ) -> Float[Array, "samples outputs"]:
        """The outputs on each sample."""

    def length(self, axis: str) -> int | None:
        """How long the axes of this name are, in annotations; None where it may be any length."""
        return self.features if axis == "features" else None

    @property
    def depth(self) -> int:
        """How many arrays are trained."""
        return len(self.shapes)

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        return sum(prod(shape) for shape in self.shapes)

    def check(self, weights: Any, *, name: str = "weights", many: bool = True) -> None:
        """Refuse weights whose shapes are not this network's; batch axes are allowed if `many`."""
        require_shapes(name, weights, self.shapes, many)
