"""A squared distance of a product of matrices: what kernels can descend.

    value = scale |F_K ... F_1 - target|^2 + minimum + decay / 2 |trained factors|^2

A linear network on a squared error is of this form. The readout is a last factor and the triangular
factor of the samples a first one, both fixed, so that no condition number is squared:

    |R W_N ... W_1 F^T - T^T|^2.

Kernels multiply from the last factor on. Where the first end is narrower, the chain is turned
round: all matrices are transposed, and their order is reversed.

Depth, widths and all numbers are arguments of kernels at run time. A chain holds them as arrays;
the lanes' own numbers lie in *frames* (`Layout`).
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Chain:
    """The product and its target, as kernels take them.

    Attributes:
        widths: factor j has widths[j + 1] x widths[j] numbers, and comes before factor j + 1.
        first: the first factor that is trained.
        last: the one behind the last that is.
        factors: all factors one behind the other; those that are trained are zero.
        places: where each trained number lies among the weights, first layer first.
        target: what the product is compared with.
        scale, minimum, decay: as above.
    """

    widths: np.ndarray
    first: int
    last: int
    factors: np.ndarray
    places: np.ndarray
    target: np.ndarray
    scale: float
    minimum: float
    decay: float

    @property
    def length(self) -> int:
        """How many factors there are."""
        return self.widths.size - 1

    @property
    def rows(self) -> int:
        """Of the product, which are as few as its columns, or fewer."""
        return int(self.widths[-1])

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where each factor begins, and where the last one ends."""
        return np.array([0, *accumulate(self.widths[1:] * self.widths[:-1])])

    @cached_property
    def trained(self) -> slice:
        """Where the trained numbers lie among the factors."""
        return slice(int(self.offsets[self.first]), int(self.offsets[self.last]))


def chain_of(
    layers: tuple[int, ...],
    readout: Any,
    factor: Any,
    target: Any,
    *,
    scale: float,
    minimum: float,
    decay: float,
) -> Chain:
    """The chain of a linear network on a squared error.

    Args:
        layers: the widths of the network, the input first.
        readout: R^T, last width x outputs, or None.
        factor: F, rank x features, or None for the identity.
        target: T^T, outputs x rank.
        scale: of the loss.
        minimum: what is added to it.
        decay: of the weights.
    """
    shapes = list(zip(layers[1:], layers[:-1], strict=True))
    ends = np.cumsum([0, *(rows * columns for rows, columns in shapes)])
    # A trained factor is given by where its numbers are among the weights, a fixed one by itself.
    matrices = [
        (np.arange(start, start + rows * columns).reshape(rows, columns), True)
        for start, (rows, columns) in zip(ends[:-1], shapes, strict=True)
    ]
    if factor is not None:
        matrices.insert(0, (np.asarray(factor, float).T, False))
    if readout is not None:
        matrices.append((np.asarray(readout, float).T, False))
    target = np.asarray(target, float)
    if matrices[-1][0].shape[0] > matrices[0][0].shape[1]:
        matrices = [(matrix.T, trained) for matrix, trained in reversed(matrices)]
        target = target.T
    kept = [trained for _, trained in matrices]
    first = kept.index(True)
    return Chain(
        widths=np.array([matrices[0][0].shape[1], *(matrix.shape[0] for matrix, _ in matrices)]),
        first=first,
        last=first + len(shapes),
        factors=np.concatenate(
            [(0.0 if trained else 1.0) * matrix.ravel() for matrix, trained in matrices]
        ),
        places=np.concatenate([matrix.ravel() for matrix, trained in matrices if trained]),
        target=np.ascontiguousarray(target).ravel(),
        scale=scale,
        minimum=minimum,
        decay=decay,
    )
