"""What kernels are told of a chain: whole numbers in one array, real ones in another.

The first whole numbers are single ones, which each kernel goes on numbering from `SHARED` to
`FACTORS`. Then there are five for each factor, and for what is behind the last one:

    width     of what the factor takes in
    offset    where its numbers begin
    product   where the product from the last factor down to this one begins; the last is itself
    before    where what has come back to this factor from the residual begins
    change    where the change of `product` along a direction begins
"""

import numpy as np

from thalweg.kernels.chain import Chain
from thalweg.kernels.compiling import inlined
from thalweg.kernels.frames import Areas
from thalweg.kernels.products import multiply

LENGTH, FIRST, LAST, TARGET, SHARED = range(5)
FACTORS = 16
SCALE, MINIMUM, DECAY, OWN = range(4)


class Plan:
    """Hands out the rows of a frame, and notes where they are.

    Attributes:
        areas: the rows of a frame.
    """

    def __init__(self, chain: Chain, own: dict[int, int], *, curved: bool = False):
        """Plan a chain, with whole numbers of a kernel's own; `curved`: for Hessian products."""
        self.areas, rows, widths = Areas(chain.factors.size), chain.rows, chain.widths

        def along(count: int) -> list[int]:
            kept = [self.areas.take(rows * int(width)) for width in widths[:count]]
            return kept + [0] * (widths.size - count)

        products = along(chain.length - 1)
        products[chain.length - 1] = int(chain.offsets[-2])
        empty = [0] * widths.size
        befores, changes = (along(chain.length), along(chain.length)) if curved else (empty, empty)
        self._numbers = np.zeros(FACTORS + 5 * widths.size, np.int64)
        single = {LENGTH: chain.length, FIRST: chain.first, LAST: chain.last, **own}
        self._numbers[list(single)] = list(single.values())
        table = np.stack([widths, chain.offsets, products, befores, changes], axis=1)
        self._numbers[FACTORS:] = table.ravel()

    def take(self, name: int, rows: int) -> slice:
        """So many rows for what has this number; where they are."""
        begin = self._numbers[name] = self.areas.take(rows)
        return slice(int(begin), int(begin) + rows)

    @property
    def numbers(self) -> np.ndarray:
        """As a kernel takes them."""
        return self._numbers


@inlined
def width(plan, j):
    """Of what factor j takes in."""
    return plan[FACTORS + 5 * j]


@inlined
def offset(plan, j):
    """Where the numbers of factor j begin."""
    return plan[FACTORS + 5 * j + 1]


@inlined
def product(plan, j):
    """Where the product from the last factor down to j begins."""
    return plan[FACTORS + 5 * j + 2]


@inlined
def before(plan, j):
    """Where what has come back to factor j begins."""
    return plan[FACTORS + 5 * j + 3]


@inlined
def change(plan, j):
    """Where the change of `product` begins."""
    return plan[FACTORS + 5 * j + 4]


@inlined
def multiply_down(x, plan):
    """All products from the last factor on."""
    rows = width(plan, plan[LENGTH])
    for j in range(plan[LENGTH] - 2, -1, -1):
        multiply(
            x, product(plan, j), product(plan, j + 1), offset(plan, j),
            rows, width(plan, j + 1), width(plan, j),
        )  # fmt: skip
