"""Both ends of the Hessian's spectrum at many points: Lanczos's recursion in lanes, as one kernel.

All points begin with the same direction, and a point is done as soon as its own errors are small
enough: its numbers are bitwise independent of the batch. Points that are not done continue where
they are.
"""

import numpy as np

from thalweg.kernels.chain import Chain
from thalweg.kernels.compiling import inlined, kernel
from thalweg.kernels.frames import aligned
from thalweg.kernels.hessian import HERE, HESSIAN, SPARE, apply_hessian, prepare
from thalweg.kernels.plans import FIRST, LAST, TARGET, Plan, offset
from thalweg.kernels.products import dot
from thalweg.kernels.ritz import ends
from thalweg.kernels.tiles import (
    add,
    fma,
    four,
    full,
    lanes_of,
    larger,
    load,
    load_rows,
    numbers_of,
    over,
    root,
    size,
    store,
    store_rows,
    subtract,
    times,
    where_less,
)  # fmt: skip

_VECTORS, _ALPHAS, _BETAS, _STATE, _SCRATCH, _ENDS, _FIRST_DIRECTION = range(HESSIAN, HESSIAN + 7)
_BETA, _WIDTH, _STATES = range(3)  # numbers that are kept from step to step
_EXHAUSTED = 1e-13  # a beta below this part of the spectrum's width is rounding


def ends_at(
    chain: Chain,
    points: np.ndarray,
    *,
    tolerance: float,
    first: int,
    most: int,
    lanes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest eigenvalue with their errors, points x 4, and Lanczos steps taken.

    Args:
        chain: what is differentiated twice.
        points: the weights, points x size, as they are recorded.
        tolerance: of the errors, as a part of the largest modulus.
        first: after how many steps to look first; then after a third more, and so on.
        most: after how many steps to leave it at that.
        lanes: how many points go together.
    """
    plan, widest = Plan(chain, {}, curved=True), chain.rows * int(chain.widths.max())
    plan.take(HERE, widest)
    plan.take(SPARE, widest)
    target = plan.take(TARGET, chain.target.size)
    plan.take(_VECTORS, 3 * chain.factors.size)
    plan.take(_ALPHAS, most)
    plan.take(_BETAS, most)
    plan.take(_STATE, _STATES)
    plan.take(_SCRATCH, 4 + 8 * most)
    plan.take(_ENDS, 4)
    direction = plan.take(_FIRST_DIRECTION, chain.factors.size)
    frame = aligned(1, plan.areas.size, lanes)
    frame[:] = 0.0
    frame[0, : chain.factors.size] = chain.factors[:, None]
    frame[0, target] = chain.target[:, None]
    unit = np.random.default_rng(0).standard_normal(chain.places.size)
    unit /= np.linalg.norm(unit)
    frame[0, direction][chain.trained] = unit[chain.places][:, None]
    found, steps = np.empty((len(points), 4)), np.zeros(len(points), np.int64)
    numbers = np.array([chain.scale, chain.minimum, chain.decay], float)
    _ends_at(
        frame, (0,) * lanes, plan.numbers, numbers, np.ascontiguousarray(points), chain.places,
        float(tolerance), first, most, found, steps,
    )  # fmt: skip
    return found, steps


@kernel
def _ends_at(
    frame, lanes, told, real_numbers, points, places, tolerance, first, most, found, steps
):
    plan, numbers = numbers_of(told), numbers_of(real_numbers)
    x, width = lanes_of(frame, 0, lanes), frame.shape[2]
    trained = offset(plan, plan[FIRST])
    for begin in range(0, points.shape[0], width):
        real = min(width, points.shape[0] - begin)
        for lane in range(width):
            point = begin + min(lane, real - 1)
            for index in range(places.size):
                frame[0, trained + index, lane] = points[point, places[index]]
        prepare(x, plan, numbers)
        _begin(x, plan)
        done, goal, waiting = 0, first, True
        while waiting:
            for index in range(done, goal):
                _step(x, plan, numbers, index)
            ends(x, plan[_ALPHAS], plan[_BETAS], goal, plan[_SCRATCH], plan[_ENDS])
            waiting = False
            for lane in range(real):
                if steps[begin + lane] == 0:
                    row = plan[_ENDS]
                    low, low_error = frame[0, row, lane], frame[0, row + 1, lane]
                    high, high_error = frame[0, row + 2, lane], frame[0, row + 3, lane]
                    goal_error = tolerance * max(abs(low), abs(high))
                    # Comparisons with NaN are false: such a point is done.
                    if (low_error > goal_error or high_error > goal_error) and goal < most:
                        waiting = True
                    else:
                        found[begin + lane, 0], found[begin + lane, 1] = low, low_error
                        found[begin + lane, 2], found[begin + lane, 3] = high, high_error
                        steps[begin + lane] = goal
            done, goal = goal, min(goal + goal // 3 + 1, most)


@inlined
def _begin(x, plan):
    """The first direction, and none before it."""
    count = offset(plan, plan[LAST])
    for index in range(count):
        store(x, plan[_VECTORS] + index, load(x, plan[_FIRST_DIRECTION] + index))
        store(x, plan[_VECTORS] + 2 * count + index, full(x, 0.0))
    for index in range(_STATES):
        store(x, plan[_STATE] + index, full(x, 0.0))


@inlined
def _step(x, plan, numbers, index):
    """One step of the recursion; three vectors take turns to be the last, this and the next."""
    size_of_one = offset(plan, plan[LAST])
    start = offset(plan, plan[FIRST])
    count, vectors = size_of_one - start, plan[_VECTORS]
    here = vectors + index % 3 * size_of_one
    after = vectors + (index + 1) % 3 * size_of_one
    past = vectors + (index + 2) % 3 * size_of_one
    apply_hessian(x, plan, numbers, here, after)
    alpha = dot(x, after + start, here + start, count)
    beta = load(x, plan[_STATE] + _BETA)
    squares = _orthogonalised(x, after + start, here + start, past + start, alpha, beta, count)
    norm = root(squares)
    width = larger(load(x, plan[_STATE] + _WIDTH), add(size(alpha), norm))
    least, zero, one = times(full(x, _EXHAUSTED), width), full(x, 0.0), full(x, 1.0)
    # An exhausted space has no direction left: its rows repeat a value inside of the spectrum.
    if index > 0:
        dead = where_less(zero, beta, alpha, load(x, plan[_ALPHAS]))
        alpha = where_less(subtract(alpha, alpha), one, dead, alpha)
    scale = where_less(least, norm, over(one, norm), zero)
    norm = where_less(least, norm, norm, zero)
    store(x, plan[_ALPHAS] + index, alpha)
    store(x, plan[_BETAS] + index, norm)
    store(x, plan[_STATE] + _BETA, norm)
    store(x, plan[_STATE] + _WIDTH, width)
    for place in range(after + start, after + start + count):
        store(x, place, times(scale, load(x, place)))


@inlined
def _orthogonalised(x, after, here, past, alpha, beta, count):
    """Subtract alpha here + beta past, and return the square of what is left."""
    y, k = four(x), 0
    minus_alpha, minus_beta = subtract(full(x, 0.0), alpha), subtract(full(x, 0.0), beta)
    while k + 4 <= count:
        rest = fma(minus_alpha, load_rows(y, here + k, 1), load_rows(y, after + k, 1))
        store_rows(y, after + k, 1, fma(minus_beta, load_rows(y, past + k, 1), rest))
        k += 4
    while k < count:
        rest = fma(minus_alpha, load(x, here + k), load(x, after + k))
        store(x, after + k, fma(minus_beta, load(x, past + k), rest))
        k += 1
    return dot(x, after, after, count)
