"""Check a proof that a descent run stays near the exact gradient flow: `python checker.py FILE`.

This file stands alone: the standard library and python-flint are all it uses, and nothing that
made the proof is trusted. Every real number below is enclosed by a ball of `arb`; a comparison of
balls is true only if it holds for all numbers in them, so that what is accepted is a theorem, if
this file, Python and FLINT are right. What a file calls hints may hold any numbers: they make a
bound good or bad, never wrong.

THE STATEMENT. A linear network x -> R^T W_N ... W_1 x (R optional, fixed) has the weights
theta = (W_1, ..., W_N), each row by row, and F is its end-to-end matrix. The objective is

    f(theta) = phi(F) + decay / 2 |theta|^2,
    phi(F) = |F - target|^2 / 2    or    scale * mean over i of |F x_i - y_i|^2,

all of its numbers being the doubles in the file. Let theta(t) be the flow theta' = -grad f(theta)
from any start within `start_distance` of the point theta_0 of the file. Then for each step k

    lower_k <= |theta(k eta) - theta_k| <= upper_k.

THE PROOF. grad phi(F) = F S - K with S = 2 scale mean(x x^T) and K = 2 scale mean(y x^T), or
I and the target. Let g and H be the gradient and the Hessian of f at theta_k, c = c_k and

    z(s) = theta_k - s g + s^2 / 2 H g + (I - s H) c,    0 <= s <= eta,    x = z - theta_k,
    C = |c|,    G = |g| + eta / 2 |H g| + |H c|,    so that |x| <= C + s G.

[1] By Taylor's formula |z' + grad f(z)| <= q0 + q1 s + q2 s^2 / 2 with

    q0 = L C^2 / 2,    q1 = |H^2 c| + L C G,    q2 = |H^2 g| + L G^2,

where L bounds |D^3 f| on the ball of radius C + eta G around theta_k.

[2] The distance e = |theta - z| obeys e' <= M e + |z' + grad f(z)| almost everywhere, M being the
mean of -lambda_min(Hessian) over the segment from z to theta, which is within |x| + u e of theta_k,
0 <= u <= 1. While e < b, with bounds on the ball of radius C + eta G + b, M is at most both

    -lambda_min(H) + L a    and    -decay + (|grad phi| + h d1 a) d2,    a = C + s G + b / 2.

[3] Let m(s) be the smaller one, which increases with s, and m1 = max(0, m(eta)). If e <= r at s = 0
and

    exp(m1 eta) r + q0 eta phi_1 + q1 eta^2 phi_2 + q2 eta^3 phi_3 < b,    phi_j = phi_j(m1 eta),
    phi_j(x) = sum over i >= 0 of x^i / (i + j)!,

then e never reaches b: the left side bounds it for as long as it has not. At s = eta, e is at most
the left side with m(eta / 2) in the place of the first m1, for that is the mean of either bound.

[4] z starts at theta_k + c_k. So r_{k+1} >= e + |z(eta) - theta_{k+1} - c_{k+1}| bounds the
distance of the flow from theta_{k+1} + c_{k+1}; this step needs no rounded number to be exact.
Hence lower_k = |c_k| - r_k and upper_k = |c_k| + r_k.

[5] On the ball of radius r around theta_k the products W_j ... W_{i+1} (for j = N with R^T in
front) have norms T_ij <= N_ij + r sum over i < k <= j of N_kj T_i,k-1, if N_ij are those at
theta_k. So |DF| <= d1, |D^2 F| <= d2, |D^3 F| <= d3 and |D^3 f| <= L with

    d1 = |(T_kN T_0,k-1)_k|,    d2 = lambda_max of T_mN T_k,m-1 T_0,k-1 (symmetric, k < m),
    d3 = min{(N - 1)(N - 2) / sqrt(N) times the largest, norm of the unfolding} of the symmetric
         tensor T_nN T_m,n-1 T_k,m-1 T_0,k-1 (k < m < n),
    L = 3 h d1 d2 + (|grad phi| + h r d1) d3,    h = |S|,    |.| spectral for grad phi and S.

[6] For any Q at all, a symmetric A has lambda_min(A) >= -|A - Q Q^T|_F. With a rounded Cholesky
factor of H - hint I this bounds lambda_min(H), and of hint^2 I - A^T A the norm of A. A symmetric A
without negative entries has lambda_max(A) <= max_i (A v)_i / v_i for any positive v.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cache, reduce
from itertools import pairwise
from math import inf, isfinite, nextafter, sqrt
from operator import mul
from pathlib import Path
from typing import Any

from flint import arb, arb_mat, ctx

PRECISION = 128  # bits
FORMAT = "thalweg proof 1"
_STEEPEST = 64  # m1 eta above this proves nothing worth having
_SERIES = 24  # terms of phi_3

Rows = list[list[float]]


class Rejected(Exception):
    """Why a file proves nothing; one sentence."""


@dataclass(frozen=True)
class Checked:
    """The verdict on a file, and what is proven if it is accepted.

    Attributes:
        accepted: whether everything in the file is proven.
        reason: why not; empty if it is.
        network: the widths, such as "4-4-1".
        weights: how many there are.
        steps: of descent.
        time: learning rate x steps.
        start_distance: how far the flow may start from the run.
        largest_upper: the largest of the upper bounds.
        ratio: of the upper to the lower bound there; infinite where the lower one is zero.
        between: what the distance from the polygon through all points stays below, at all times.
        largest_jump: how far a point of the file is, at most, from a step of descent.
    """

    accepted: bool
    reason: str
    network: str = ""
    weights: int = 0
    steps: int = 0
    time: float = 0.0
    start_distance: float = 0.0
    largest_upper: float = inf
    ratio: float = inf
    between: float = inf
    largest_jump: float = inf

    def __str__(self) -> str:
        if not self.accepted:
            return f"rejected: {self.reason}"
        return (
            f"proven: linear network {self.network}, {self.weights} weights, {self.steps} steps, "
            f"time {_as_it_is(self.time)}\n"
            f"the exact flow from within {_as_it_is(self.start_distance)} of the first point stays "
            f"within {_from_above(self.largest_upper, 6)} of the points "
            f"({self._beside_the_lower_bound()})\nand within "
            f"{_from_above(self.between, 6)} of the polygon through them; they are steps of "
            f"descent up to {_from_above(self.largest_jump, 1)}"
        )

    def _beside_the_lower_bound(self) -> str:
        """How much above the lower bound the upper one is, where there is a lower one."""
        if not isfinite(self.ratio):
            return "the lower bound there is zero"
        return f"{_from_above(self.ratio, 4)} times the lower bound there"


def _from_above(value: float, digits: int) -> str:
    """A few digits that are not below the value: what is printed is proven, too."""
    if not isfinite(value):
        return f"{value:g}"
    return f"{Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value):g}"


def _as_it_is(value: float) -> str:
    """All digits, unless few are the value."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


@dataclass(frozen=True)
class Hint:
    """What the maker knew at a step: b, lambda_min(H), N_ij (by j, then i), |grad phi|."""

    within: float
    smallest: float | None
    norms: list[float]
    slope: float


@dataclass(frozen=True)
class Problem:
    """What f is; `moment` is a hint at |S|. Without a target there are inputs and targets."""

    widths: list[int]
    readout: Rows | None
    target: Rows | None
    inputs: Rows
    targets: Rows
    scale: float
    moment: float
    weight_decay: float


@dataclass(frozen=True)
class Claim:
    """The content of a file, all numbers finite and all shapes right."""

    problem: Problem
    learning_rate: float
    start_distance: float
    points: Rows
    corrections: Rows
    radii: list[float]
    lower: list[float]
    upper: list[float]
    hints: list[Hint]


def check(path: str | Path) -> Checked:
    """The verdict on a file; only a file that cannot be opened raises (OSError)."""
    raw = Path(path).read_bytes()
    try:
        with ctx.workprec(PRECISION):
            return _verify(parse(raw))
    except Rejected as refusal:
        return Checked(False, str(refusal))
    except (ArithmeticError, ValueError, TypeError, LookupError, MemoryError) as error:
        return Checked(False, f"it cannot be evaluated ({type(error).__name__}: {error}).")


def _verify(claim: Claim) -> Checked:
    objective, rate = Objective(claim.problem), arb(claim.learning_rate)
    widest, jumped = [arb(0)], [arb(0)]
    if not arb(claim.radii[0]) >= claim.start_distance + norm(column(claim.corrections[0])):
        raise Rejected("the first radius is smaller than the distance at the start.")
    for k, hint in enumerate(claim.hints):
        point, correction = column(claim.points[k]), column(claim.corrections[k])
        step = Step(Place(objective, claim.points[k], hint), correction, rate)
        reached, after = step.grown(arb(claim.radii[k]), arb(hint.within))
        if not reached < hint.within:  # [3]
            raise Rejected(f"in step {k} the flow is not proven to stay within the guess.")
        moved = column(claim.points[k + 1]) - point + rate * step.gradient
        jump = norm(moved + column(claim.corrections[k + 1]) - step.correction)  # [4]
        if not after + jump <= claim.radii[k + 1]:
            raise Rejected(f"the radius after step {k} is smaller than what is proven.")
        widest.append(step.wander + reached + norm(moved))
        jumped.append(norm(moved))
    for k, correction in enumerate(claim.corrections):
        size, radius = arb_norm(column(correction)), arb(claim.radii[k])
        if not size + radius <= claim.upper[k]:
            raise Rejected(f"the upper bound at step {k} is smaller than what is proven.")
        if claim.lower[k] != 0 and not claim.lower[k] <= size - radius:
            raise Rejected(f"the lower bound at step {k} is larger than what is proven.")
    top = max(range(len(claim.upper)), key=claim.upper.__getitem__)
    return Checked(
        accepted=True,
        reason="",
        network="-".join(map(str, claim.problem.widths)),
        weights=len(claim.points[0]),
        steps=len(claim.hints),
        time=len(claim.hints) * claim.learning_rate,
        start_distance=claim.start_distance,
        largest_upper=claim.upper[top],
        ratio=claim.upper[top] / claim.lower[top] if claim.lower[top] else inf,
        between=rounded_up(reduce(bigger, (each.upper() for each in widest))),
        largest_jump=rounded_up(reduce(bigger, (each.upper() for each in jumped))),
    )


class Objective:
    """f as balls: S, K and h = |S| of the docstring, the readout and the decay."""

    def __init__(self, problem: Problem):
        self.widths, self.decay = problem.widths, arb(problem.weight_decay)
        self.readout = None if problem.readout is None else arb_mat(problem.readout)
        if problem.target is not None:
            self.moment, self.pull = identity(problem.widths[0]), arb_mat(problem.target)
            self.bend = arb(1)
            return
        inputs, targets = arb_mat(problem.inputs), arb_mat(problem.targets)
        factor = 2 * arb(problem.scale) / len(problem.inputs)
        self.moment = factor * (inputs.transpose() * inputs)
        self.pull = factor * (targets.transpose() * inputs)
        self.bend = spectral_norm(self.moment, problem.moment)

    def products(self, point: list[float]) -> dict[tuple[int, int], arb_mat]:
        """W_j ... W_{i+1} for 0 <= i <= j <= N, for j = N with the transposed readout in front."""
        depth, start = len(self.widths) - 1, 0
        table = {(i, i): identity(width) for i, width in enumerate(self.widths)}
        for j, (inner, outer) in enumerate(pairwise(self.widths), 1):
            layer = arb_mat(outer, inner, point[start : start + outer * inner])
            start += outer * inner
            for i in range(j):
                table[i, j] = layer * table[i, j - 1]
        if self.readout is not None:
            for i in range(depth + 1):
                table[i, depth] = self.readout.transpose() * table[i, depth]
        return table


class Place:
    """theta_k: gradient, Hessian, a lower bound on its eigenvalues, N_ij and |grad phi|."""

    def __init__(self, objective: Objective, point: list[float], hint: Hint | None = None):
        self.depth = depth = len(objective.widths) - 1
        self.bend, self.decay = objective.bend, objective.decay
        self.products = products = objective.products(point)
        self.slope_matrix = products[0, depth] * objective.moment - objective.pull
        above = [products[k, depth].transpose() for k in range(1, depth + 1)]
        below = [products[0, k] for k in range(depth)]
        slopes = [a * self.slope_matrix * b.transpose() for a, b in zip(above, below, strict=True)]
        flat = [entry for slope in slopes for entry in slope.entries()]
        self.gradient = arb_mat(len(flat), 1, flat) + objective.decay * column(point)
        self.hessian = self._hessian(objective, above, below)
        if hint is not None:
            self.measure(hint)

    def _hessian(self, objective: Objective, above: list[arb_mat], below: list[arb_mat]) -> arb_mat:
        """H, whose entry for (i, j) of layer k and (p, q) of layer m >= k is as follows.

        (A_k A_m^T)_ip (B_k S B_m^T)_jq + [k < m] (W_{m-1} ... W_{k+1})_qi (A_m (F S - K) B_k^T)_pj.
        """
        slope, blocks = self.slope_matrix.transpose(), dict[tuple[int, int], list[list[arb]]]()
        for k in range(self.depth):
            for m in range(k, self.depth):
                left = (above[k] * above[m].transpose()).tolist()
                right = (below[k] * objective.moment * below[m].transpose()).tolist()
                block = [[x * y for x in one for y in two] for one in left for two in right]
                if k < m:
                    inner = self.products[k + 1, m].transpose().tolist()
                    outer = (below[k] * slope * above[m].transpose()).tolist()
                    mixed = [[x * y for x in two for y in one] for one in inner for two in outer]
                    block = [
                        [x + y for x, y in zip(one, two, strict=True)]
                        for one, two in zip(block, mixed, strict=True)
                    ]
                blocks[k, m] = block
                blocks[m, k] = block if k == m else [list(row) for row in zip(*block, strict=True)]
        rows = [
            reduce(list.__add__, (blocks[k, m][i] for m in range(self.depth)))
            for k in range(self.depth)
            for i in range(len(blocks[k, 0]))
        ]
        return arb_mat(rows) + objective.decay * identity(len(rows))

    def measure(self, hint: Hint) -> None:
        """The bounds that hints help with, [6]."""
        self.slope = spectral_norm(self.slope_matrix, hint.slope)
        self.norms: dict[tuple[int, int], arb] = {}
        hints = iter(hint.norms)
        for i, j in pairs(self.depth):
            trivial = i == j < self.depth
            self.norms[i, j] = (
                arb(1) if trivial else spectral_norm(self.products[i, j], next(hints))
            )
        self.smallest = None
        if hint.smallest is not None:
            shift = arb(hint.smallest)
            self.smallest = shift + least(self.hessian - shift * identity(self.hessian.nrows()))

    def ball(self, radius: arb) -> tuple[arb, arb, arb]:
        """L, d1 and d2 on the ball of this radius, [5]."""
        depth, reach = self.depth, dict[tuple[int, int], arb]()
        for i, j in pairs(depth):
            disturbed = (self.norms[k, j] * reach[i, k - 1] for k in range(i + 1, j + 1))
            reach[i, j] = self.norms[i, j] + radius * sum(disturbed, arb(0))
        above = [reach[k, depth] for k in range(1, depth + 1)]
        below = [reach[0, k] for k in range(depth)]
        first = root(sum((a * a * b * b for a, b in zip(above, below, strict=True)), arb(0)))
        second = [[arb(0)] * depth for _ in range(depth)]
        for k in range(depth):
            for m in range(k + 1, depth):
                second[k][m] = second[m][k] = above[m] * reach[k + 1, m] * below[k]
        twice, thrice = largest(second), self._third(reach, above, below)
        bent = 3 * self.bend * first * twice
        change = bent + (self.slope + self.bend * radius * first) * thrice
        return change.upper(), first, twice

    def _third(self, reach: dict[tuple[int, int], arb], above: list[arb], below: list[arb]) -> arb:
        """d3, [5]."""
        depth = self.depth
        if depth < 3:
            return arb(0)
        unfolded, top = arb_mat(depth, depth**2), arb(0)
        for n in range(depth):
            for m in range(n):
                for k in range(m):
                    value = above[n] * reach[m + 1, n] * reach[k + 1, m] * below[k]
                    top = bigger(top, value.upper())
                    for a, b, c in ((k, m, n), (m, n, k), (n, k, m)):
                        unfolded[a, b * depth + c] = unfolded[a, c * depth + b] = value
        maclaurin = (depth - 1) * (depth - 2) / arb(depth).sqrt() * top
        return smaller(maclaurin.upper(), root(largest((unfolded * unfolded.transpose()).tolist())))


class Step:
    """One step from theta_k: its curve z, the defect [1], and what becomes of a radius [3]."""

    def __init__(self, place: Place, correction: arb_mat, rate: arb):
        self.place, self.rate, self.gradient = place, rate, place.gradient
        bent, turned = place.hessian * place.gradient, place.hessian * correction
        self.correction = correction - rate * turned + rate * rate / 2 * bent  # z(eta), relative
        self.offset = norm(correction)  # C
        self.speed = norm(place.gradient) + rate / 2 * norm(bent) + norm(turned)  # G
        self.wander = self.offset + rate * norm(turned) + rate * rate / 2 * norm(bent)
        change, _, _ = place.ball(self.offset + rate * self.speed)
        self.constant = change * self.offset * self.offset / 2  # q0
        self.linear = norm(place.hessian * turned) + change * self.offset * self.speed  # q1
        self.quadratic = norm(place.hessian * bent) + change * self.speed * self.speed  # q2

    def grown(self, radius: arb, within: arb) -> tuple[arb, arb]:
        """The left side of [3], and the radius at the end, if e starts <= radius and stays < b."""
        rate, place = self.rate, self.place
        change, first, second = place.ball(self.offset + rate * self.speed + within)

        def exponent(time: arb) -> arb:
            away = self.offset + time * self.speed + within / 2
            by_norms = (place.slope + place.bend * first * away) * second - place.decay
            if place.smallest is None:
                return by_norms.upper()
            return smaller((change * away - place.smallest).upper(), by_norms.upper())

        steepest = exponent(rate)
        steepest = arb(0) if steepest <= 0 else steepest
        if not steepest * rate <= _STEEPEST:
            return arb("inf"), arb("inf")
        one, two, three = phi(steepest * rate)
        added = rate * (
            self.constant * one + rate * (self.linear * two + rate * self.quadratic * three)
        )
        reached = (steepest * rate).exp() * radius + added
        return reached.upper(), ((exponent(rate / 2) * rate).exp() * radius + added).upper()


def phi(x: arb) -> tuple[arb, arb, arb]:
    """phi_1, phi_2, phi_3 for x >= 0: phi_j = 1 / j! + x phi_{j+1}; the rest is <= term e^x."""
    total, term = arb(0), arb(1) / 6
    for i in range(_SERIES):
        total += term
        term = term * x / (i + 4)
    three = total.union(total + term * x.exp())
    two = arb(1) / 2 + x * three
    return 1 + x * two, two, three


def pairs(depth: int) -> list[tuple[int, int]]:
    """(i, j) with 0 <= i <= j <= depth, by j, then i."""
    return [(i, j) for j in range(depth + 1) for i in range(j + 1)]


def column(entries: list[float]) -> arb_mat:
    """A vector as a matrix."""
    return arb_mat(len(entries), 1, entries)


@cache
def identity(size: int) -> arb_mat:
    """The identity matrix, which nobody changes."""
    return arb_mat(size, size, [float(i == j) for i in range(size) for j in range(size)])


def smaller(one: arb, other: arb) -> arb:
    """The smaller of two upper bounds; either would do, unless it is NaN."""
    return one if one < other or other.is_nan() else other


def bigger(one: arb, other: arb) -> arb:
    """The larger of two exact numbers; NaN if either is."""
    return one if one >= other or one.is_nan() else other


def root(square: arb) -> arb:
    """The square root, rounded up."""
    return square.upper().sqrt().upper()


def rounded_up(number: arb) -> float:
    """The least double that is proven to be no smaller."""
    rounded = float(number)
    while not number <= rounded < inf:
        if not rounded < inf:  # NaN, too
            return inf
        rounded = nextafter(rounded, inf)
    return rounded


def arb_norm(matrix: arb_mat) -> arb:
    """The Frobenius norm, enclosed."""
    return sum((x * x for x in matrix.entries()), arb(0)).sqrt()


def norm(matrix: arb_mat) -> arb:
    """The Frobenius norm, rounded up."""
    return root(sum((x * x for x in matrix.entries()), arb(0)))


def least(matrix: arb_mat) -> arb:
    """A lower bound on the eigenvalues of a symmetric matrix that is nearly positive, [6]."""
    factor = arb_mat(cholesky([[float(x) for x in row] for row in matrix.tolist()]))
    return -norm(matrix - factor * factor.transpose())


def cholesky(rows: Rows) -> Rows:
    """A rounded Cholesky factor; where a pivot is not positive, the column is left out."""
    factor: Rows = []
    for i, row in enumerate(rows):
        new: list[float] = []
        for j in range(i):
            pivot = factor[j][j]
            new.append((row[j] - sum(map(mul, new, factor[j]))) / pivot if pivot else 0.0)
        pivot = row[i] - sum(x * x for x in new)
        factor.append([*new, sqrt(pivot) if pivot > 0 else 0.0])
    return [[*row, *[0.0] * (len(rows) - len(row))] for row in factor]


def spectral_norm(matrix: arb_mat, hint: float) -> arb:
    """An upper bound on the spectral norm: Frobenius', or the one from the hint, [6]."""
    frobenius = norm(matrix)
    if matrix.nrows() == 1 or matrix.ncols() == 1:
        return frobenius
    wide = matrix.nrows() < matrix.ncols()
    square = matrix * matrix.transpose() if wide else matrix.transpose() * matrix
    shift = arb(hint) * hint
    return smaller(root(shift - least(shift * identity(square.nrows()) - square)), frobenius)


def largest(rows: list[list[arb]]) -> arb:
    """An upper bound on the largest eigenvalue of a symmetric matrix without negative entries."""
    floats = [[float(x) for x in row] for row in rows]
    vector = [1.0] * len(rows)
    for _ in range(60):  # power iteration; any positive vector will do
        image = [sum(map(mul, row, vector)) for row in floats]
        ratios = [x / v for x, v in zip(image, vector, strict=True)]
        spread = max(ratios) - min(ratios)
        if not 1e-14 * max(ratios) < spread < inf:
            break
        vector = [x / max(ratios) + v / 4 for x, v in zip(image, vector, strict=True)]
        vector = [max(v / max(vector), 1e-9) for v in vector]
    bound = arb(0)
    for row, own in zip(rows, vector, strict=True):
        image = sum((x * v for x, v in zip(row, vector, strict=True)), arb(0))
        bound = bigger(bound, (image / own).upper())
    return bound


def digest(content: dict[str, Any]) -> str:
    """The SHA-256 of everything but itself, as JSON with sorted keys and without spaces."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(
        json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def parse(raw: bytes) -> Claim:
    """The claim in a file, or a rejection: nothing that is unusual passes."""
    try:
        content = json.loads(
            raw.decode(),
            object_pairs_hook=_once,
            parse_constant=_refuse_number,
            parse_float=_refuse_number,
        )
    except (ValueError, RecursionError) as error:
        raise Rejected(f"it is no JSON text ({error}).") from error
    names = (
        "format network loss weight_decay learning_rate start_distance points corrections radii "
        "lower upper hints sha256"
    )
    _require_keys(content, "the file", names.split())
    if content["format"] != FORMAT:
        raise Rejected(f"its format must be {FORMAT!r}.")
    if content["sha256"] != digest(content):
        raise Rejected("its digest does not fit its content; it was changed or damaged.")
    return _claim(content)


def parse_problem(content: dict[str, Any]) -> Problem:
    """What f is, from the content of a file."""
    network, loss = content["network"], content["loss"]
    _require_keys(network, "network", ["widths", "readout"])
    widths = _list(network["widths"], "widths")
    if len(widths) < 2 or any(type(width) is not int or width < 1 for width in widths):
        raise Rejected("widths must be at least two whole numbers >= 1.")
    readout, outputs = network["readout"], widths[-1]
    if readout is not None:
        outputs = len(_list(_list(readout, "readout", widths[-1])[0], "readout[0]"))
        readout = _table(readout, "readout", widths[-1], outputs)
    decay = _number(content["weight_decay"], "weight_decay", least=0.0)
    if isinstance(loss, dict) and loss.get("kind") == "target":
        _require_keys(loss, "loss", ["kind", "target"])
        target = _table(loss["target"], "target", outputs, widths[0])
        return Problem(widths, readout, target, [], [], 0.5, 1.0, decay)
    _require_keys(loss, "loss", ["kind", "inputs", "targets", "scale", "norm"])
    if loss["kind"] != "regression":
        raise Rejected("the loss must be of the kind target or regression.")
    inputs = _table(loss["inputs"], "inputs", None, widths[0])
    targets = _table(loss["targets"], "targets", len(inputs), outputs)
    scale, moment = (_positive(loss[name], name) for name in ("scale", "norm"))
    return Problem(widths, readout, None, inputs, targets, scale, moment, decay)


def _claim(content: dict[str, Any]) -> Claim:
    problem = parse_problem(content)
    size = sum(a * b for a, b in pairwise(problem.widths))
    steps, depth = len(_list(content["hints"], "hints")), len(problem.widths) - 1
    radii, lower, upper = (
        _vector(content[name], name, steps + 1, least=0.0) for name in ("radii", "lower", "upper")
    )
    norms = depth * (depth + 1) // 2 + 1
    return Claim(
        problem=problem,
        learning_rate=_positive(content["learning_rate"], "learning_rate"),
        start_distance=_number(content["start_distance"], "start_distance", least=0.0),
        points=_table(content["points"], "points", steps + 1, size),
        corrections=_table(content["corrections"], "corrections", steps + 1, size),
        radii=radii,
        lower=lower,
        upper=upper,
        hints=[_hint(hint, f"hints[{k}]", norms) for k, hint in enumerate(content["hints"])],
    )


def _hint(value: Any, name: str, count: int) -> Hint:
    _require_keys(value, name, ["within", "smallest", "norms", "slope"])
    smallest = value["smallest"]
    return Hint(
        _positive(value["within"], f"{name}.within"),
        None if smallest is None else _number(smallest, f"{name}.smallest"),
        _vector(value["norms"], f"{name}.norms", count, least=0.0),
        _number(value["slope"], f"{name}.slope", least=0.0),
    )


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(items)) != len(items):
        raise ValueError("a key appears twice")
    return dict(items)


def _refuse_number(text: str) -> None:
    raise ValueError(f"numbers must be hexadecimal strings, got {text[:30]}")


def _require_keys(value: Any, name: str, keys: Sequence[str]) -> None:
    if not isinstance(value, dict) or set(value) != set(keys):
        raise Rejected(f"{name} must hold {', '.join(keys)} and nothing else.")


def _list(value: Any, name: str, count: int | None = None) -> list[Any]:
    if not isinstance(value, list) or not value or len(value) != (count or len(value)):
        raise Rejected(f"{name} must be a list of {count or 'one or more'} entries.")
    return value


def _table(value: Any, name: str, rows: int | None, columns: int) -> Rows:
    return [_vector(row, f"{name}[{i}]", columns) for i, row in enumerate(_list(value, name, rows))]


def _vector(value: Any, name: str, count: int, least: float | None = None) -> list[float]:
    return [_number(x, f"{name}[{i}]", least) for i, x in enumerate(_list(value, name, count))]


def _number(value: Any, name: str, least: float | None = None) -> float:
    """A finite double that is written exactly as Python's float.hex writes it."""
    try:
        number = float.fromhex(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number) or number.hex() != value:
        raise Rejected(f"{name} must be a finite number as written by float.hex().")
    if least is not None and not number >= least:
        raise Rejected(f"{name} must be at least {least:g}.")
    return number


def _positive(value: Any, name: str) -> float:
    number = _number(value, name)
    if not number > 0:
        raise Rejected(f"{name} must be positive.")
    return number


def main(arguments: list[str]) -> int:
    """Print the verdict: 0 if proven, 1 if rejected, 2 if the file cannot be read."""
    if len(arguments) != 1:
        print("usage: python checker.py FILE")
        return 2
    try:
        verdict = check(arguments[0])
    except OSError as error:
        print(f"cannot read {arguments[0]}: {error}")
        return 2
    print(verdict)
    return 0 if verdict.accepted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
