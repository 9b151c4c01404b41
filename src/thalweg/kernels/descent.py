"""Descent of many chains side by side (`chain`), as one kernel.

A frame holds what one set of lanes needs: the factors, the momentum, the products along the chain,
and the learning rates. It is small enough for a core's first cache, and takes all of its steps
there before the next frame's turn. The momentum form covers plain descent, heavy ball and Nesterov:

    g = gradient,    m <- beta m + g,    direction = m, or g + beta m where it looks ahead.
"""

import numpy as np

from thalweg.kernels.chain import Chain
from thalweg.kernels.compiling import kernel, part
from thalweg.kernels.frames import Areas, aligned
from thalweg.kernels.products import multiply, multiply_back, outer
from thalweg.kernels.tiles import (
    add,
    fma,
    four,
    full,
    lanes_of,
    load,
    load_rows,
    numbers_of,
    store,
    store_rows,
    subtract,
    times,
    where_less,
)

# What a kernel is told: whole numbers, then three of them for each factor and behind the last one;
# and a few real numbers.
_LENGTH, _FIRST, _LAST, _TRAINED, _KIND = range(5)
_MOMENTUM, _BEFORE, _SPARE, _TARGET, _RATE, _SURVIVED, _FACTORS = range(5, 12)
_SCALE, _MINIMUM, _DECAY, _BETA = range(4)
_PLAIN, _HEAVY_BALL, _NESTEROV = range(3)


class Descents:
    """A few descents in flight."""

    def __init__(
        self,
        chain: Chain,
        weights: np.ndarray,
        rates: np.ndarray,
        beta: float,
        ahead: bool,
        lanes: int,
    ):
        """Start at these weights (runs x size, as they are recorded) with these learning rates."""
        self.runs, self._chain, self._lanes = rates.size, chain, (0,) * lanes
        kind = (_NESTEROV if ahead else _HEAVY_BALL) if beta > 0 else _PLAIN
        self._numbers = np.array([chain.scale, chain.minimum, chain.decay, beta], float)
        self._plan, rows = _plan(chain, kind)
        count = -(-self.runs // len(self._lanes))
        self._frames = aligned(count, rows, len(self._lanes))
        self._frames[:] = 0.0
        target = self._rows(_TARGET, chain.target.size)
        self._frames[:, : chain.factors.size] = chain.factors[:, None]
        self._frames[:, target] = chain.target[:, None]
        self._fill(chain.trained, weights[:, chain.places])
        self._fill(self._rows(_RATE), rates[:, None])

    def advance(
        self, inner: int, count: int, losses: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        """`count` times: record, then take `inner` steps, which may be none.

        Losses are runs x records, weights runs x records x size; both may have room for more.
        """
        kept = np.empty((0, 0, 0)) if weights is None else weights
        _advance(
            self._frames, self._lanes, self._plan, self._numbers, inner, count, losses, kept,
            self._chain.places,
        )  # fmt: skip

    @property
    def weights(self) -> np.ndarray:
        """Where they are: runs x size, as they are recorded."""
        found = np.empty((self.runs, self._chain.places.size))
        found[:, self._chain.places] = self._read(self._chain.trained)
        return found

    @property
    def survived(self) -> np.ndarray:
        """How many steps, and looks, began at a finite loss."""
        return self._read(self._rows(_SURVIVED))[:, 0].astype(int)

    def _rows(self, name: int, count: int = 1) -> slice:
        begin = int(self._plan[name])
        return slice(begin, begin + count)

    def _fill(self, rows: slice, values: np.ndarray) -> None:
        frames, _, lanes = self._frames.shape
        padded = values[np.minimum(np.arange(frames * lanes), self.runs - 1)]  # with the last run
        self._frames[:, rows] = np.swapaxes(padded.reshape(frames, lanes, -1), 1, 2)

    def _read(self, rows: slice) -> np.ndarray:
        taken = np.swapaxes(self._frames[:, rows], 1, 2)
        return taken.reshape(-1, taken.shape[2])[: self.runs]


def _plan(chain: Chain, kind: int) -> tuple[np.ndarray, int]:
    """Where things are in a frame, and how many rows it has."""
    areas = Areas(chain.factors.size)
    rows, widths = chain.rows, chain.widths
    # The products from the last factor down to each; the first of them is that factor itself.
    products = [areas.take(rows * int(width)) for width in widths[: chain.length - 1]]
    widest = rows * int(widths.max())
    header = {
        _LENGTH: chain.length,
        _FIRST: chain.first,
        _LAST: chain.last,
        _TRAINED: chain.trained.start,
        _KIND: kind,
        _MOMENTUM: areas.take(chain.factors.size if kind != _PLAIN else 0),
        _BEFORE: areas.take(widest),
        _SPARE: areas.take(widest),
        _TARGET: areas.take(chain.target.size),
        _RATE: areas.take(1),
        _SURVIVED: areas.take(1),
    }
    factors = np.stack([widths, chain.offsets, [*products, chain.offsets[-2], 0]], axis=1)
    return np.array([*header.values(), *factors.ravel()]), areas.size


# --- what is compiled ----------------------------------------------------------------------------


@kernel
def _advance(frames, lanes, told, real_numbers, inner, count, losses, weights, places):
    plan, numbers = numbers_of(told), numbers_of(real_numbers)
    trained = plan[_TRAINED]
    for frame in range(frames.shape[0]):
        x = lanes_of(frames, frame * frames.shape[1] * frames.shape[2], lanes)
        first = frame * frames.shape[2]
        real = min(frames.shape[2], losses.shape[0] - first)
        for record in range(count):
            if weights.shape[0] > 0:
                for lane in range(real):
                    for index in range(places.size):
                        kept = frames[frame, trained + index, lane]
                        weights[first + lane, record, places[index]] = kept
            _forward(x, plan, numbers)
            for lane in range(real):
                losses[first + lane, record] = frames[frame, plan[_SPARE], lane]
            for step in range(inner):
                if step > 0:
                    _forward(x, plan, numbers)
                _backward(x, plan, numbers)


@part
def _width(plan, j):
    return plan[_FACTORS + 3 * j]


@part
def _offset(plan, j):
    return plan[_FACTORS + 3 * j + 1]


@part
def _product(plan, j):
    return plan[_FACTORS + 3 * j + 2]


@part
def _forward(x, plan, numbers):
    """All products from the last factor on, the residual's gradient, and the value, to `_SPARE`."""
    rows = _width(plan, plan[_LENGTH])
    for j in range(plan[_LENGTH] - 2, -1, -1):
        multiply(
            x, _product(plan, j), _product(plan, j + 1), _offset(plan, j),
            rows, _width(plan, j + 1), _width(plan, j),
        )  # fmt: skip
    value, scale = full(x, 0.0), full(x, 2 * numbers[_SCALE])
    for index in range(rows * _width(plan, 0)):
        product = load(x, _product(plan, 0) + index)
        residual = subtract(product, load(x, plan[_TARGET] + index))
        value = fma(residual, residual, value)
        store(x, plan[_BEFORE] + index, times(scale, residual))
    value = fma(full(x, numbers[_SCALE]), value, full(x, numbers[_MINIMUM]))
    if numbers[_DECAY] != 0.0:
        squares = full(x, 0.0)
        for index in range(_offset(plan, plan[_FIRST]), _offset(plan, plan[_LAST])):
            number = load(x, index)
            squares = fma(number, number, squares)
        value = fma(full(x, numbers[_DECAY] / 2), squares, value)
    store(x, plan[_SPARE], value)
    # What is not finite differs from itself by something that is not below one.
    finite = where_less(subtract(value, value), full(x, 1.0), full(x, 1.0), full(x, 0.0))
    store(x, plan[_SURVIVED], add(load(x, plan[_SURVIVED]), finite))


@part
def _backward(x, plan, numbers):
    """A step along every trained factor, from the first on."""
    rows = _width(plan, plan[_LENGTH])
    before, spare = plan[_BEFORE], plan[_SPARE]
    first, last = plan[_FIRST], plan[_LAST]
    plain = rows == 1 and plan[_KIND] == _PLAIN and numbers[_DECAY] == 0.0
    minus = subtract(full(x, 0.0), load(x, plan[_RATE]))
    for j in range(last):
        factor, above, below = _offset(plan, j), _width(plan, j + 1), _width(plan, j)
        if plain and first <= j and j < plan[_LENGTH] - 1:
            after = _product(plan, j + 1)
            _vector_step(x, spare, before, after, factor, above, below, minus)
        else:
            if j + 1 < last:
                multiply_back(x, spare, before, factor, rows, above, below)
            if j >= first:
                _matrix_step(x, plan, numbers, j, before, minus)
        before, spare = spare, before


@part
def _vector_step(x, out, b, a, w, above, below, minus):
    """B W^T, and W - rate A^T B, of one row each, in one go through W."""
    i = 0
    while i + 4 <= above:
        _vector_rows(four(x), out + i, b, a + i, w + i * below, below, minus)
        i += 4
    while i < above:
        _vector_rows(x, out + i, b, a + i, w + i * below, below, minus)
        i += 1


@part
def _vector_rows(x, out, b, a, w, below, minus):
    pace = times(minus, load_rows(x, a, 1))
    number, old = load(x, b), load_rows(x, w, below)
    total = times(number, old)
    store_rows(x, w, below, fma(pace, number, old))
    for k in range(1, below):
        number, old = load(x, b + k), load_rows(x, w + k, below)
        total = fma(number, old, total)
        store_rows(x, w + k, below, fma(pace, number, old))
    store_rows(x, out, 1, total)


@part
def _matrix_step(x, plan, numbers, j, before, minus):
    """A step along factor j, whose gradient is A^T B, or B where it is the last factor."""
    above, below = _width(plan, j + 1), _width(plan, j)
    for i in range(above):
        k = 0
        while k + 4 <= below:
            _numbers_step(four(x), plan, numbers, j, before, i, k, minus)
            k += 4
        while k < below:
            _numbers_step(x, plan, numbers, j, before, i, k, minus)
            k += 1


@part
def _numbers_step(x, plan, numbers, j, before, i, k, minus):
    above, below = _width(plan, j + 1), _width(plan, j)
    at = _offset(plan, j) + i * below + k
    if j == plan[_LENGTH] - 1:
        gradient = load_rows(x, before + i * below + k, 1)
    else:
        after, rows = _product(plan, j + 1), _width(plan, plan[_LENGTH])
        gradient = outer(x, after, before, i, k, rows, above, below)
    old = load_rows(x, at, 1)
    if numbers[_DECAY] != 0.0:
        gradient = fma(full(x, numbers[_DECAY]), old, gradient)
    direction = gradient
    if plan[_KIND] != _PLAIN:
        beta, memory = full(x, numbers[_BETA]), plan[_MOMENTUM] + at
        direction = fma(beta, load_rows(x, memory, 1), gradient)
        store_rows(x, memory, 1, direction)
        if plan[_KIND] == _NESTEROV:
            direction = fma(beta, direction, gradient)
    store_rows(x, at, 1, fma(minus, direction, old))
