"""What all networks share: a parametrised map with weights in a plain tuple of arrays.

A network declares what it is; its type is never asked for: `smooth` says whether its gradient
jumps, `linear` and `layered` give it as a product of matrices or as linear layers with a two-slope
activation, where it is one. What needs such a form takes it from there, and refuses None.
"""

from abc import abstractmethod
from math import prod
from typing import TYPE_CHECKING, Any, no_type_check

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from thalweg._checks import require_shapes
from thalweg._shown import shown
from thalweg._typing import Weights
from thalweg.network.kinks import AbstractKinks

if TYPE_CHECKING:  # their modules import this one
    from thalweg.network.layered import LayeredNetwork
    from thalweg.network.linear import LinearNetwork


@shown
class AbstractNetwork(eqx.Module):
    """A map x -> network(weights, x), applied to samples given as rows.

    `shapes` are those of the weights, first layer first; `features` and `outputs` are its input
    and output dimension (None where it cannot know); `smooth` says whether the map has a continuous
    gradient with respect to its weights.
    """

    shapes: eqx.AbstractVar[tuple[tuple[int, ...], ...]]
    features: eqx.AbstractVar[int | None]
    outputs: eqx.AbstractVar[int | None]
    smooth: eqx.AbstractVar[bool]

    @abstractmethod
    def __call__(
        self, weights: Weights, x: Float[Array, "samples features"]
    ) -> Float[Array, "samples outputs"]:
        """The outputs on each sample."""

    @property
    @no_type_check  # run-time checkers cannot see the type, which is imported for editors alone
    def linear(self) -> "LinearNetwork | None":
        """The same map as a product of matrices, with the same weights; None where it is none."""
        return None

    @property
    @no_type_check
    def layered(self) -> "LayeredNetwork | None":
        """The same map as linear layers with a two-slope activation; None where it is none."""
        return None

    def kinks_on(self, x: Float[np.ndarray, "samples features"]) -> AbstractKinks | None:
        """Where the gradient jumps on these samples; None where that is nowhere, or not known."""
        return None

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
