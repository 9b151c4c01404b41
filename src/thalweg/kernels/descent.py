"""Descent of many chains side by side (`chain`), as one kernel.

A frame holds what one set of lanes needs: the factors, the momentum, the products along the chain,
and the learning rates. It is small enough for a core's first cache, and takes all of its steps
there before the next frame's turn. The momentum form covers plain descent, heavy ball and Nesterov:

    g = gradient,    m <- beta m + g,    direction = m, or g + beta m where it looks ahead.
"""

import numpy as np

from thalweg.kernels.chain import Chain
from thalweg.kernels.compiling import inlined, kernel, part
from thalweg.kernels.frames import aligned
from thalweg.kernels.plans import (
    DECAY,
    FIRST,
    LAST,
    LENGTH,
    MINIMUM,
    OWN,
    SCALE,
    SHARED,
    TARGET,
    Plan,
    multiply_down,
    offset,
    product,
    width,
)
from thalweg.kernels.products import multiply_back, outer
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

_KIND, _MOMENTUM, _BEFORE, _SPARE, _RATE, _SURVIVED = range(SHARED, SHARED + 6)
_BETA = OWN
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
        plan, widest = Plan(chain, {_KIND: kind}), chain.rows * int(chain.widths.max())
        plan.take(_MOMENTUM, chain.factors.size if kind != _PLAIN else 0)
        plan.take(_BEFORE, widest)
        plan.take(_SPARE, widest)
        target = plan.take(TARGET, chain.target.size)
        rate, self._survived = plan.take(_RATE, 1), plan.take(_SURVIVED, 1)
        self._plan = plan.numbers
        self._frames = aligned(-(-self.runs // lanes), plan.areas.size, lanes)
        self._frames[:] = 0.0
        self._frames[:, : chain.factors.size] = chain.factors[:, None]
        self._frames[:, target] = chain.target[:, None]
        self._fill(chain.trained, weights[:, chain.places])
        self._fill(rate, rates[:, None])

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

    def gradients(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients at other weights (runs x size): by a step from there, of length one.

        They are exact to rounding of the weights. Where the descents are is forgotten.
        """
        self._fill(self._chain.trained, weights[:, self._chain.places])
        losses = np.empty((self.runs, 1))
        self.advance(1, 1, losses)
        return losses[:, 0], weights - self.weights

    @property
    def weights(self) -> np.ndarray:
        """Where they are: runs x size, as they are recorded."""
        found = np.empty((self.runs, self._chain.places.size))
        found[:, self._chain.places] = self._read(self._chain.trained)
        return found

    @property
    def survived(self) -> np.ndarray:
        """How many steps, and looks, began at a finite loss."""
        return self._read(self._survived)[:, 0].astype(int)

    def _fill(self, rows: slice, values: np.ndarray) -> None:
        frames, _, lanes = self._frames.shape
        padded = values[np.minimum(np.arange(frames * lanes), self.runs - 1)]  # with the last run
        self._frames[:, rows] = np.swapaxes(padded.reshape(frames, lanes, -1), 1, 2)

    def _read(self, rows: slice) -> np.ndarray:
        taken = np.swapaxes(self._frames[:, rows], 1, 2)
        return taken.reshape(-1, taken.shape[2])[: self.runs]


# --- what is compiled ----------------------------------------------------------------------------


@kernel
def _advance(frames, lanes, told, real_numbers, inner, count, losses, weights, places):
    plan, numbers = numbers_of(told), numbers_of(real_numbers)
    trained = offset(plan, plan[FIRST])
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
            for step in range(max(inner, 1)):
                _forward(x, plan, numbers)
                if step == 0:
                    for lane in range(real):
                        losses[first + lane, record] = frames[frame, plan[_SPARE], lane]
                if inner > 0:
                    _backward(x, plan, numbers)


@inlined
def _forward(x, plan, numbers):
    """All products from the last factor on, the residual's gradient, and the value, to `_SPARE`."""
    rows = width(plan, plan[LENGTH])
    multiply_down(x, plan)
    value, scale = full(x, 0.0), full(x, 2 * numbers[SCALE])
    for index in range(rows * width(plan, 0)):
        found = load(x, product(plan, 0) + index)
        residual = subtract(found, load(x, plan[TARGET] + index))
        value = fma(residual, residual, value)
        store(x, plan[_BEFORE] + index, times(scale, residual))
    value = fma(full(x, numbers[SCALE]), value, full(x, numbers[MINIMUM]))
    if numbers[DECAY] != 0.0:
        squares = full(x, 0.0)
        for index in range(offset(plan, plan[FIRST]), offset(plan, plan[LAST])):
            number = load(x, index)
            squares = fma(number, number, squares)
        value = fma(full(x, numbers[DECAY] / 2), squares, value)
    store(x, plan[_SPARE], value)
    # What is not finite differs from itself by something that is not below one.
    finite = where_less(subtract(value, value), full(x, 1.0), full(x, 1.0), full(x, 0.0))
    store(x, plan[_SURVIVED], add(load(x, plan[_SURVIVED]), finite))


@part
def _backward(x, plan, numbers):
    """A step along every trained factor, from the first on."""
    rows = width(plan, plan[LENGTH])
    before, spare = plan[_BEFORE], plan[_SPARE]
    first, last = plan[FIRST], plan[LAST]
    plain = rows == 1 and plan[_KIND] == _PLAIN and numbers[DECAY] == 0.0
    minus = subtract(full(x, 0.0), load(x, plan[_RATE]))
    for j in range(last):
        factor, above, below = offset(plan, j), width(plan, j + 1), width(plan, j)
        if plain and first <= j and j < plan[LENGTH] - 1:
            after = product(plan, j + 1)
            _vector_step(x, spare, before, after, factor, above, below, minus)
        else:
            if j + 1 < last:
                multiply_back(x, spare, before, factor, rows, above, below)
            if j >= first:
                _matrix_step(x, plan, numbers, j, before, minus)
        before, spare = spare, before


@inlined
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


@inlined
def _matrix_step(x, plan, numbers, j, before, minus):
    """A step along factor j, whose gradient is A^T B, or B where it is the last factor."""
    i = 0
    while i + 4 <= width(plan, j + 1):
        _matrix_rows(four(x), plan, numbers, j, before, i, minus)
        i += 4
    while i < width(plan, j + 1):
        _matrix_rows(x, plan, numbers, j, before, i, minus)
        i += 1


@part
def _matrix_rows(x, plan, numbers, j, before, i, minus):
    rows, above, below = width(plan, plan[LENGTH]), width(plan, j + 1), width(plan, j)
    top, after, begin = j == plan[LENGTH] - 1, product(plan, j + 1) + i, i * below
    decay, beta, kind = full(x, numbers[DECAY]), full(x, numbers[_BETA]), plan[_KIND]
    for k in range(begin, begin + below):
        if top:
            gradient = load_rows(x, before + k, below)
        else:
            gradient = outer(x, after, before + k - begin, rows, above, below)
        at = offset(plan, j) + k
        old = load_rows(x, at, below)
        gradient = fma(decay, old, gradient)
        direction = gradient
        if kind != _PLAIN:
            memory = plan[_MOMENTUM] + at
            direction = fma(beta, load_rows(x, memory, below), gradient)
            store_rows(x, memory, below, direction)
            if kind == _NESTEROV:
                direction = fma(beta, direction, gradient)
        store_rows(x, at, below, fma(minus, direction, old))
