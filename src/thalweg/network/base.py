"""What all networks share: a parametrised map with weights in a plain tuple of arrays."""

from abc import abstractmethod
from math import prod

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from thalweg._checks import InputError
from thalweg._typing import Weights


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

    @property
    def depth(self) -> int:
        """How many arrays are trained."""
        return len(self.shapes)

    @property
    def size(self) -> int:
        """How many numbers are trained."""
        return sum(prod(shape) for shape in self.shapes)

    def check(self, weights: Weights) -> None:
        """Refuse weights whose shapes are not this network's; leading batch axes are allowed."""
        if len(weights) != self.depth:
            raise InputError(
                f"`weights` must hold {self.depth} arrays, one per layer, got {len(weights)}."
            )
        for layer, (array, shape) in enumerate(zip(weights, self.shapes, strict=True), start=1):
            got = np.shape(array)
            if len(got) < len(shape) or got[len(got) - len(shape) :] != shape:
                raise InputError(
                    f"`weights` must fit the network: layer {layer} has shape {got}, expected "
                    f"{shape}. Was the tuple given last layer first?"
                )
