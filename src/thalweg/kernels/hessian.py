"""The Hessian of a chain, applied to directions in lanes.

Along a direction V of the trained factors the products A_j = F_K ... F_j, and what comes back from
the residual, B_1 = G and B_{j+1} = B_j F_j^T, change by

    dA_j = dA_{j+1} F_j + A_{j+1} V_j,    dB_1 = 2 scale dA_1,    dB_{j+1} = dB_j F_j^T + B_j V_j^T,

and the gradient A_{j+1}^T B_j of factor j by dA_{j+1}^T B_j + A_{j+1}^T dB_j. The A_j and B_j of a
point serve all directions.
"""

from thalweg.kernels.compiling import inlined, part
from thalweg.kernels.plans import (
    DECAY,
    FIRST,
    LAST,
    LENGTH,
    SCALE,
    SHARED,
    TARGET,
    before,
    change,
    multiply_down,
    offset,
    product,
    width,
)  # fmt: skip
from thalweg.kernels.products import (
    multiply,
    multiply_back,
    multiply_both,
    multiply_both_back,
    outer,
)  # fmt: skip
from thalweg.kernels.tiles import (
    add,
    fma,
    four,
    full,
    load,
    load_rows,
    store,
    store_rows,
    subtract,
    times,
)  # fmt: skip

HERE, SPARE, HESSIAN = range(SHARED, SHARED + 3)
"""Where the changes dB_j are, in turns; kernels go on numbering from the last one."""


@inlined
def prepare(x, plan, numbers):
    """All A_j and B_j at the point that the factors are."""
    rows = width(plan, plan[LENGTH])
    multiply_down(x, plan)
    scale = full(x, 2 * numbers[SCALE])
    for index in range(rows * width(plan, 0)):
        residual = subtract(load(x, product(plan, 0) + index), load(x, plan[TARGET] + index))
        store(x, before(plan, 0) + index, times(scale, residual))
    for j in range(plan[LAST] - 1):
        multiply_back(
            x, before(plan, j + 1), before(plan, j), offset(plan, j),
            rows, width(plan, j + 1), width(plan, j),
        )  # fmt: skip


@part
def apply_hessian(x, plan, numbers, direction, out):
    """The Hessian times a direction; both lie as the factors do."""
    _changes_down(x, plan, direction)
    rows, here, spare = width(plan, plan[LENGTH]), plan[HERE], plan[SPARE]
    scale, top = full(x, 2 * numbers[SCALE]), _change(plan, 0, direction)
    for index in range(rows * width(plan, 0)):
        store(x, here + index, times(scale, load(x, top + index)))
    for j in range(plan[LAST]):
        above, below, factor = width(plan, j + 1), width(plan, j), offset(plan, j)
        trained, goes_on = j >= plan[FIRST], j + 1 < plan[LAST]
        if rows == 1 and trained and goes_on:
            _vector_changes(x, plan, numbers, j, here, spare, direction, out)
        else:
            if trained:
                _gradient_change(x, plan, numbers, j, here, direction, out)
            if trained and goes_on:
                back, along = before(plan, j), direction + factor
                multiply_both_back(x, spare, here, factor, back, along, rows, above, below)
            elif goes_on:
                multiply_back(x, spare, here, factor, rows, above, below)
        here, spare = spare, here


@inlined
def _change(plan, j, direction):
    """Where dA_j is: that of the last factor is the direction itself."""
    if j == plan[LENGTH] - 1:
        return direction + offset(plan, j)
    return change(plan, j)


@inlined
def _changes_down(x, plan, direction):
    """All dA_j, where they are not zero."""
    rows = width(plan, plan[LENGTH])
    for j in range(plan[LENGTH] - 2, -1, -1):
        above, below, factor = width(plan, j + 1), width(plan, j), offset(plan, j)
        moved, trained = j + 1 < plan[LAST], plan[FIRST] <= j and j < plan[LAST]
        higher, after = _change(plan, j + 1, direction), product(plan, j + 1)
        if moved and trained:
            multiply_both(
                x, change(plan, j), higher, factor, after, direction + factor, rows, above, below
            )
        elif moved:
            multiply(x, change(plan, j), higher, factor, rows, above, below)
        elif trained:
            multiply(x, change(plan, j), after, direction + factor, rows, above, below)


@inlined
def _gradient_change(x, plan, numbers, j, here, direction, out):
    """What the gradient of factor j changes by, to `out`."""
    i = 0
    while i + 4 <= width(plan, j + 1):
        _changed_rows(four(x), plan, numbers, j, here, direction, out, i)
        i += 4
    while i < width(plan, j + 1):
        _changed_rows(x, plan, numbers, j, here, direction, out, i)
        i += 1


@part
def _changed_rows(x, plan, numbers, j, here, direction, out, i):
    rows, above, below = width(plan, plan[LENGTH]), width(plan, j + 1), width(plan, j)
    top, moved, decay = j == plan[LENGTH] - 1, j + 1 < plan[LAST], full(x, numbers[DECAY])
    after, higher = product(plan, j + 1) + i, _change(plan, j + 1, direction) + i
    for k in range(below):
        at = offset(plan, j) + i * below + k
        if top:
            changed = load_rows(x, here + i * below + k, below)
        else:
            changed = outer(x, after, here + k, rows, above, below)
        if moved:
            back = before(plan, j) + k
            changed = add(changed, outer(x, higher, back, rows, above, below))
        old = load_rows(x, direction + at, below)
        store_rows(x, out + at, below, fma(decay, old, changed))


@inlined
def _vector_changes(x, plan, numbers, j, here, spare, direction, out):
    """`_gradient_change` and the next dB of one row each, in one go through the factor."""
    i = 0
    while i + 4 <= width(plan, j + 1):
        _vector_rows(four(x), plan, numbers, j, here, spare + i, direction, out, i)
        i += 4
    while i < width(plan, j + 1):
        _vector_rows(x, plan, numbers, j, here, spare + i, direction, out, i)
        i += 1


@part
def _vector_rows(x, plan, numbers, j, here, next_change, direction, out, i):
    below, back, decay = width(plan, j), before(plan, j), full(x, numbers[DECAY])
    after = load_rows(x, product(plan, j + 1) + i, 1)
    higher = load_rows(x, _change(plan, j + 1, direction) + i, 1)
    left, right = full(x, 0.0), full(x, 0.0)
    for k in range(below):
        at = offset(plan, j) + i * below + k
        number, number_back, along = (
            load(x, here + k),
            load(x, back + k),
            load_rows(x, direction + at, below),
        )
        left = fma(number, load_rows(x, at, below), left)
        right = fma(number_back, along, right)
        changed = fma(higher, number_back, times(after, number))
        store_rows(x, out + at, below, fma(decay, along, changed))
    store_rows(x, next_change, 1, add(left, right))
