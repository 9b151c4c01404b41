"""Check a proof of how far descent runs are from the exact gradient flow: `python checker.py FILE`.

This file stands alone: the standard library and python-flint are all it uses, and nothing that
made the proof is trusted. Every real number below is enclosed by a ball of `arb`; a comparison of
balls is true only if it holds for all numbers in them, so that what is accepted is a theorem, if
this file, Python and FLINT are right. A proof file holds the problem, the start, a partition of
time, and claims; the curve and every bound are computed here.

THE STATEMENT. A linear network x -> R^T W_N ... W_1 x (R optional, fixed) has the weights
theta = (W_1, ..., W_N), each row by row, and M = R^T W_N ... W_1. The objective is

    f(theta) = phi(M) + decay / 2 |theta|^2,    phi convex:
    phi(M) = |M - target|^2 / 2,    scale * mean over i of |M x_i - y_i|^2,
             or the mean over i of log sum_c exp(M x_i)_c - (M x_i)_label(i),

all of its numbers being the doubles in the file. Let theta(t) be the flow theta' = -grad f(theta)
from any start within radii_0 of the weights theta_0 of the file, and for each of its learning
rates eta let w_0 = theta_0, w_{k+1} = w_k - eta grad f(w_k), in real numbers. Then for each k

    lower_k <= |theta(k eta) - w_k| <= upper_k.

THE PROOF. With A_N = R^T, A_{j-1} = A_j W_j, so that M = A_0, and L_0 = Gamma = grad phi(M),
L_j = L_{j-1} W_j^T, the gradient of W_j is A_j^T L_{j-1} + decay W_j.

[1] The curve. On each interval [t_n, t_{n+1}] of length h, z is a polynomial of degree p, made like
the Taylor polynomial of the flow through a point z_n: in s = (t - t_n) / h, 0 <= s <= 1, its
coefficients, which are exact numbers, are

    W_j[k+1] = -h / (k+1) (gradient of W_j)[k], rounded.

z_{n+1} is the polynomial of z_n at s = 1 but for rounding, the *jump*, whose size is known.

[2] The defect. The coefficients of z' + grad f(z) up to order q are computed; below p they are what
rounding has left. What is left of a product, in supremum over the interval, is bounded by the norms
of coefficients:

    rest(X Y) <= sum over i + l > q of |X[i]| |Y[l]| + rest(X) |Y| + |X| rest(Y) + rest(X) rest(Y)

with |X| the sum of all |X[i]|. The square loss has Gamma = M S - K, S = 2 scale mean(x x^T) and
K = 2 scale mean(y x^T), or I and the target, so that rest(Gamma) <= |S| rest(M).

[3] Cross-entropy has Gamma = mean over i of (P_i - e_label(i)) x_i^T. For one sample let z be M x
cut off after order q, and P its softmax: P' = P (z' - <P, z'>), entry by entry. Let Q be the Taylor
polynomial of P to order q, which this gives. Then Q' = Q (z' - <Q, z'>) + rho, rho having no
coefficients below q, and with E = |Q - P| <= 1

    E' <= 4 |z'| E + |rho|,    hence    E <= exp(4 sum over k >= 1 of |z[k]|) integral of |rho|,

if this is below 1. The softmax is Lipschitz with 1/2, so P is off by at most rest(M) |x| / 2 more.

[4] Growth. The Hessian of f is what the convex phi gives, decay, and the rest, whose blocks of the
layers i < j send (D_i, D_j) to <A_j^T L_{i-1}, D_j C_ij D_i>, C_ij = W_{j-1} ... W_{i+1}. So

    -lambda_min <= m = |(|A_j^T L_{i-1}| |C_ij|)_ij| - decay,

the norm of a symmetric N x N matrix with a zero diagonal. Norms within b of the curve: let N_ij be
those of W_j ... W_{i+1} at z_n (for j = N with R^T in front), and let W_k move by at most rho_k.
Then the products have norms T_ij(rho) <= N_ij + sum over i < k <= j of N_kj rho_k T_i,k-1, and if
all layers are moved by b more, the products change by at most T(rho + b) - T(rho), as expanding
them shows. Gamma changes by at most c times what M does, c = |S|, or |X|^2 / 2n.

[5] The radius. Let e = |theta - z|, and e <= r at t_n. For as long as e < b, with m >= 0 bounding
-lambda_min at all points within b of the curve, e' <= m e + |z' + grad f(z)|. So

    e <= exp(h m) (r + integral of |z' + grad f(z)|)    on all of the interval,

if the right side is below b, for then e never reaches b. b is the radius that the file claims for
t_{n+1}, and the right side plus the jump must be below it.

[6] The runs are computed as they are defined, with as many bits as the file says; |w_k - z(k eta)|
and the radius give both bounds.

[7] Norms of matrices are spectral or Frobenius', of which the latter is larger. With G = A^T A the
spectral norm has |A|^32 <= |G^16|_F.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import reduce
from itertools import accumulate, pairwise
from math import inf, isfinite, nextafter
from operator import add, mul
from pathlib import Path
from typing import Any

from flint import arb, arb_mat, arb_poly, ctx

FORMAT = "thalweg proof 2"
OLDER = "thalweg proof 1"
BEYOND = 8  # q - p
MOST_ORDERS, MOST_BITS, MOST_BITS_OF_RUNS = 128, 1024, 32768
_STEEPEST = 64  # h m above this proves nothing worth having
_DIGITS = 10  # of what is printed

Rows = list[list[float]]
Layers = list[arb_mat]


class Rejected(Exception):
    """Why a file proves nothing; one sentence."""


@dataclass(frozen=True)
class CheckedRun:
    """What is proven of one run.

    Attributes:
        learning_rate: eta.
        steps: how many there are.
        time: learning rate x steps.
        largest_upper: the largest of the upper bounds.
        largest_lower: the largest of the lower bounds.
        last_upper: the upper bound at the last step.
        last_lower: the lower bound there.
    """

    learning_rate: float
    steps: int
    time: float
    largest_upper: float
    largest_lower: float
    last_upper: float
    last_lower: float

    def __str__(self) -> str:
        return (
            f"learning rate {_as_it_is(self.learning_rate)}, {self.steps} steps: the largest "
            f"distance is between {_between(self.largest_lower, self.largest_upper)}, the last "
            f"between {_between(self.last_lower, self.last_upper)}"
        )


@dataclass(frozen=True)
class Checked:
    """The verdict on a file, and what is proven if it is accepted.

    Attributes:
        accepted: whether everything in the file is proven.
        reason: why not; empty if it is.
        network: the widths, such as "4-4-1".
        loss: its kind.
        weights: how many there are.
        time: up to when the flow is enclosed.
        intervals: of the partition of time.
        start_distance: how far the flow may start from the weights of the file.
        radius: the flow is never farther than this from the computed curve.
        runs: what is proven of each.
    """

    accepted: bool
    reason: str
    network: str = ""
    loss: str = ""
    weights: int = 0
    time: float = 0.0
    intervals: int = 0
    start_distance: float = 0.0
    radius: float = inf
    runs: tuple[CheckedRun, ...] = ()

    def __str__(self) -> str:
        if not self.accepted:
            return f"rejected: {self.reason}"
        head = (
            f"proven: linear network {self.network}, {self.weights} weights, {self.loss} loss; "
            f"the exact flow from within {_as_it_is(self.start_distance)} of the start stays "
            f"within {rounded(self.radius, 2)} of a computed curve to time "
            f"{rounded(self.time, 6, up=False)}"
        )
        return "\n".join([head, *map(str, self.runs)])


def rounded(value: float, digits: int, up: bool = True) -> str:
    """A few digits that are not below the value, or not above: what is printed is proven, too."""
    if not isfinite(value):
        return f"{value:g}"
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.create_decimal(value)):.{digits}g}"


def _between(lower: float, upper: float) -> str:
    return f"{rounded(lower, _DIGITS, up=False)} and {rounded(upper, _DIGITS)}"


def _as_it_is(value: float) -> str:
    """All digits, unless few are the value."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


@dataclass(frozen=True)
class Problem:
    """What f is: samples and targets, or samples and labels, or a target alone."""

    widths: list[int]
    readout: Rows | None
    kind: str
    inputs: Rows
    targets: Rows
    labels: list[int]
    scale: float
    weight_decay: float

    @property
    def outputs(self) -> int:
        """How many outputs the network has."""
        return self.widths[-1] if self.readout is None else len(self.readout[0])


@dataclass(frozen=True)
class Run:
    """What is claimed of a run: eta, the bits it is computed with, and a bound for each step."""

    learning_rate: float
    precision: int
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class Claim:
    """The content of a file, all numbers finite and all shapes right."""

    problem: Problem
    start: list[float]
    order: int
    precision: int
    times: list[float]
    radii: list[float]
    runs: list[Run]


def check(path: str | Path) -> Checked:
    """The verdict on a file; only a file that cannot be opened raises (OSError)."""
    raw = Path(path).read_bytes()
    try:
        return _verify(parse(raw))
    except Rejected as refusal:
        return Checked(False, str(refusal))
    except (ArithmeticError, ValueError, TypeError, LookupError, MemoryError) as error:
        return Checked(False, f"it cannot be evaluated ({type(error).__name__}: {error}).")


def _verify(claim: Claim) -> Checked:
    with ctx.workprec(claim.precision):
        objective = Objective(claim.problem)
        point = objective.layers(claim.start)
        runs = [
            Descent(claim.problem, claim.start, run.learning_rate, run.precision)
            for run in claim.runs
        ]
        for run, descent in zip(claim.runs, runs, strict=True):
            _compare(run, descent, point, claim.radii[0])
        for n, (begin, end) in enumerate(pairwise(claim.times)):
            step = Step(objective, point, arb(begin), arb(end), claim.order)
            point, reached = step.grown(arb(claim.radii[n]), arb(claim.radii[n + 1]))
            if not reached < claim.radii[n + 1]:  # [5]
                raise Rejected(f"the radius at times[{n + 1}] is smaller than what is proven.")
            for run, descent in zip(claim.runs, runs, strict=True):
                while descent.steps + 1 < len(run.upper) and not descent.next_time > end:
                    if not descent.next_time <= end:  # a ball around it
                        k = descent.steps + 1
                        raise Rejected(f"more bits are needed to tell the time of step {k}.")
                    descent.advance()
                    _compare(run, descent, step.at(descent.time), claim.radii[n + 1])
    for run, descent in zip(claim.runs, runs, strict=True):
        if descent.steps + 1 < len(run.upper):
            raise Rejected(f"the run with learning rate {run.learning_rate:g} outlasts the flow.")
    return _verdict(claim)


def _compare(run: Run, descent: "Descent", point: Layers, radius: float) -> None:
    """Hold both bounds at the present step of a run against what is proven."""
    k, size = descent.steps, distance(descent.point, point)
    where = f"at step {k} with learning rate {run.learning_rate:g}"
    if not size + radius <= run.upper[k]:
        raise Rejected(f"the upper bound {where} is smaller than what is proven.")
    if run.lower[k] != 0 and not run.lower[k] <= size - radius:
        raise Rejected(f"the lower bound {where} is larger than what is proven.")


def _verdict(claim: Claim) -> Checked:
    return Checked(
        accepted=True,
        reason="",
        network="-".join(map(str, claim.problem.widths)),
        loss=claim.problem.kind,
        weights=len(claim.start),
        time=claim.times[-1],
        intervals=len(claim.times) - 1,
        start_distance=claim.radii[0],
        radius=max(claim.radii),
        runs=tuple(
            CheckedRun(
                learning_rate=run.learning_rate,
                steps=len(run.upper) - 1,
                time=run.learning_rate * (len(run.upper) - 1),
                largest_upper=max(run.upper),
                largest_lower=max(run.lower),
                last_upper=run.upper[-1],
                last_lower=run.lower[-1],
            )
            for run in claim.runs
        ),
    )


class Objective:
    """f as balls: the readout, the loss and the decay."""

    def __init__(self, problem: Problem):
        self.widths, self.decay = problem.widths, arb(problem.weight_decay)
        self.readout = identity(problem.widths[-1])
        if problem.readout is not None:
            self.readout = arb_mat(problem.readout)
        self.loss = LOSSES[problem.kind](problem)

    def layers(self, weights: Sequence[Any]) -> Layers:
        """The layers that hold these weights."""
        found, start = [], 0
        for inner, outer in pairwise(self.widths):
            found.append(arb_mat(outer, inner, weights[start : start + outer * inner]))
            start += outer * inner
        return found

    def gradient(self, layers: Layers) -> Layers:
        """That of f, layer by layer."""
        upper = [self.readout.transpose()]
        for layer in reversed(layers):
            upper.append(upper[-1] * layer)
        lower, found = self.loss.gradient(upper.pop()), []
        for layer in layers:
            found.append(upper.pop().transpose() * lower + self.decay * layer)
            lower = lower * layer.transpose()
        return found


class Square:
    """The square loss: Gamma = M S - K, [2]."""

    def __init__(self, problem: Problem):
        if problem.kind == "target":
            self.moment, self.pull = identity(problem.widths[0]), arb_mat(problem.targets)
        else:
            inputs, targets = arb_mat(problem.inputs), arb_mat(problem.targets)
            factor = 2 * arb(problem.scale) / len(problem.inputs)
            self.moment = factor * (inputs.transpose() * inputs)
            self.pull = factor * (targets.transpose() * inputs)
        self.bend = spectral(self.moment)  # c, [4]

    def gradient(self, product: arb_mat) -> arb_mat:
        """Gamma at M."""
        return product * self.moment - self.pull

    def series(self) -> "SquareSeries":
        """Gamma as a series, of which nothing is known yet."""
        return SquareSeries(self)


class SquareSeries:
    """Gamma along a series of M."""

    def __init__(self, loss: Square):
        self.loss, self.met = loss, 0

    def extend(self, product: arb_mat) -> arb_mat:
        """The next coefficient of Gamma, from that of M."""
        self.met += 1
        return self.loss.gradient(product) if self.met == 1 else product * self.loss.moment

    def rest(self, product: arb) -> arb:
        """What is left of Gamma, from what is left of M."""
        return self.loss.bend * product


class CrossEntropy:
    """The mean cross-entropy: Gamma = mean over i of (P_i - e_label(i)) x_i^T, [3]."""

    def __init__(self, problem: Problem):
        self.inputs, self.count = arb_mat(problem.inputs), len(problem.inputs)
        self.labels, self.turned = problem.labels, self.inputs.transpose()
        self.lengths = [euclidean(map(arb, row)) for row in problem.inputs]
        self.stretch = spectral(self.inputs)
        self.bend = self.stretch * self.stretch / (2 * self.count)  # c, [4]

    def gradient(self, product: arb_mat) -> arb_mat:
        """Gamma at M."""
        outputs = (product * self.turned).transpose().tolist()
        return self.gathered([softmax(each) for each in outputs], first=True)

    def gathered(self, chances: list[list[arb]], first: bool) -> arb_mat:
        """Gamma from the coefficients of all P_i, of order 0 or not."""
        if first:
            chances = [
                [p - int(c == label) for c, p in enumerate(each)]
                for each, label in zip(chances, self.labels, strict=True)
            ]
        return arb_mat(chances).transpose() * self.inputs * (arb(1) / self.count)

    def series(self) -> "CrossEntropySeries":
        """Gamma as a series, of which nothing is known yet."""
        return CrossEntropySeries(self)


class CrossEntropySeries:
    """Gamma along a series of M, by one series of probabilities for each sample."""

    def __init__(self, loss: CrossEntropy):
        self.loss, self.samples = loss, [Probabilities() for _ in range(loss.count)]
        self.met = 0

    def extend(self, product: arb_mat) -> arb_mat:
        """The next coefficient of Gamma, from that of M."""
        self.met += 1
        outputs = (product * self.loss.turned).transpose().tolist()
        chances = [each.extend(z) for each, z in zip(self.samples, outputs, strict=True)]
        return self.loss.gathered(chances, first=self.met == 1)

    def rest(self, product: arb) -> arb:
        """What is left of Gamma, from what is left of M."""
        off = (
            each.rest() + product * length / 2
            for each, length in zip(self.samples, self.loss.lengths, strict=True)
        )
        return euclidean(off) * self.loss.stretch / self.loss.count


class Probabilities:
    """The softmax P of one sample's outputs z, as a series; lists go class by class, [3]."""

    def __init__(self):
        self.outputs: list[list[arb]] = []  # z, order by order
        self.chances: list[list[arb]] = []  # P
        self.relative: list[list[arb]] = []  # z' - <P, z'>
        self.rates: list[list[arb]] = []  # z'

    def extend(self, outputs: list[arb]) -> list[arb]:
        """The next coefficients of P, from those of z."""
        order = len(self.outputs)
        self.outputs.append(outputs)
        if not order:
            self.chances = [[each] for each in softmax(outputs)]
            self.rates, self.relative = [[] for _ in outputs], [[] for _ in outputs]
            return [each[0] for each in self.chances]
        for rate, z in zip(self.rates, outputs, strict=True):
            rate.append(order * z)
        mean = sum(map(dot, self.chances, self.rates), arb(0))
        for p, relative, rate in zip(self.chances, self.relative, self.rates, strict=True):
            relative.append(rate[-1] - mean)
            p.append(dot(p, relative) / order)
        return [each[order] for each in self.chances]

    def rest(self) -> arb:
        """What E is at most; infinite where the argument fails."""
        last = len(self.outputs) - 1
        chances = arb_poly([euclidean(each) for each in zip(*self.chances, strict=True)])
        rates = arb_poly([euclidean(each) for each in zip(*self.rates, strict=True)])
        product = chances * rates
        residual = (product + chances * product).coeffs()[last:]  # rho, from order q on
        length = total([euclidean(each) for each in self.outputs[1:]])
        off = (4 * length).exp() * total(residual)
        return off.upper() if off < 1 else arb("inf")


LOSSES: dict[str, Callable[[Problem], Any]] = {
    "target": Square,
    "regression": Square,
    "cross-entropy": CrossEntropy,
}


class Step:
    """An interval of time: the curve [1], its defect [2], and what becomes of a radius [5]."""

    def __init__(self, objective: Objective, point: Layers, begin: arb, end: arb, order: int):
        self.objective, self.begin, self.length, self.order = objective, begin, end - begin, order
        self.last = order + BEYOND  # q
        self._expand(point)
        self._measure()
        self.products = self._products()

    def _expand(self, point: Layers) -> None:
        """All coefficients: of W_j to order p, of A_j, L_j and the defect to order q."""
        objective, depth = self.objective, len(point)
        self.layers, turned = [[each] for each in point], [[each.transpose()] for each in point]
        flipped = [*([] for _ in point), [objective.readout]]  # the transposed A_j
        self.upper = [*([] for _ in point), [objective.readout.transpose()]]
        self.lower: list[list[arb_mat]] = [[] for _ in point]
        self.defects: list[list[arb_mat]] = [[] for _ in point]  # of z' + grad f(z)
        self.series = objective.loss.series()
        for k in range(self.last + 1):
            for j in range(depth - 1, -1, -1):
                self.upper[j].append(convolved(self.upper[j + 1], self.layers[j], k))
                flipped[j].append(self.upper[j][k].transpose())
            self.lower[0].append(self.series.extend(self.upper[0][k]))
            for j in range(1, depth):
                self.lower[j].append(convolved(self.lower[j - 1], turned[j - 1], k))
            for j in range(depth):
                slope = convolved(flipped[j + 1], self.lower[j], k)
                if k <= self.order:
                    slope = slope + objective.decay * self.layers[j][k]
                if k < self.order:
                    following = (-self.length / (k + 1) * slope).mid()
                    self.layers[j].append(following)
                    turned[j].append(following.transpose())
                    slope = slope + (k + 1) / self.length * following
                self.defects[j].append(slope)

    def _measure(self) -> None:
        """The norms of all coefficients, what is left of every product, and the defect."""
        layers, depth = [sizes(each) for each in self.layers], len(self.layers)
        upper, lower = [sizes(each) for each in self.upper], [sizes(each) for each in self.lower]
        above, below = [arb(0)], [arb(0)]  # what is left of A_N, ..., A_0 and of L_0, ..., L_{N-1}
        for j in range(depth, 0, -1):
            crossed = crossing(upper[j], layers[j - 1], self.last)
            above.append((above[-1] * total(layers[j - 1]) + crossed).upper())
        above.reverse()
        below[0] = self.series.rest(above[0]).upper()
        for j in range(1, depth):
            crossed = crossing(lower[j - 1], layers[j - 1], self.last)
            below.append((below[-1] * total(layers[j - 1]) + crossed).upper())
        self.moved = [total(each[1:]) for each in layers]
        self.upper_start, self.lower_start = [each[0] for each in upper], [x[0] for x in lower]
        self.upper_moved = [total([*each[1:], r]) for each, r in zip(upper, above, strict=True)]
        self.lower_moved = [total([*each[1:], r]) for each, r in zip(lower, below, strict=True)]
        rests = [
            crossing(upper[j + 1], lower[j], self.last)
            + above[j + 1] * (lower[j][0] + self.lower_moved[j])
            + total(upper[j + 1]) * below[j]
            for j in range(depth)
        ]
        known = [
            euclidean(norm(each[k]) for each in self.defects) / (k + 1)
            for k in range(self.last + 1)
        ]
        # The integral over the interval of |z' + grad f(z)|.
        self.defect = (self.length * (total(known) + euclidean(rests))).upper()

    def at(self, time: arb) -> Layers:
        """The curve at a time of this interval."""
        share = (time - self.begin) / self.length
        powers = list(accumulate([share] * self.order, mul, initial=arb(1)))
        found = (self._flat() * arb_mat(len(powers), 1, powers)).entries()
        return self.objective.layers(found)

    def _flat(self) -> arb_mat:
        """One row for each weight, with its coefficients."""
        if not hasattr(self, "_rows"):
            columns = [
                [entry for layer in self.layers for entry in layer[k].entries()]
                for k in range(self.order + 1)
            ]
            self._rows = arb_mat(columns).transpose()
        return self._rows

    def grown(self, radius: arb, within: arb) -> tuple[Layers, arb]:
        """The point z_{n+1}, and what e is at most on the interval if it stays within b, [5]."""
        end = self.at(self.begin + self.length)
        point = [each.mid() for each in end]
        steep = self.length * self.steepest(within)
        if not steep <= _STEEPEST:
            return point, arb("inf")
        reached = steep.exp() * (radius + self.defect) + distance(point, end)
        return point, reached.upper()

    def steepest(self, within: arb) -> arb:
        """The larger of m and 0 within this distance of the curve, [4]."""
        norms, depth = self.products, len(self.layers)
        near = disturbed(norms, self.moved, depth)
        far = disturbed(norms, [each + within for each in self.moved], depth)
        upper = [moved + far[j, depth] - near[j, depth] for j, moved in enumerate(self.upper_moved)]
        turned = self.objective.loss.bend * (far[0, depth] - near[0, depth])
        slope = self.lower_start[0] + self.lower_moved[0]
        lower = [
            moved + turned * far[0, j] + slope * (far[0, j] - near[0, j])
            for j, moved in enumerate(self.lower_moved)
        ]
        blocks = arb_mat(depth, depth)
        for j in range(1, depth):
            for i in range(j):  # the layers i + 1 and j + 1
                start = spectral(self.upper[j + 1][0].transpose() * self.lower[i][0])
                drift = self.upper_start[j + 1] * lower[i]
                drift += upper[j + 1] * (self.lower_start[i] + lower[i])
                blocks[i, j] = blocks[j, i] = (start + drift) * far[i + 1, j]
        return at_least_zero(spectral(blocks) - self.objective.decay)

    def _products(self) -> dict[tuple[int, int], arb]:
        """N_ij, [4]."""
        depth, norms = len(self.layers), dict[tuple[int, int], arb]()
        for i in range(depth):
            norms[i, i], product = arb(1), self.layers[i][0]
            for j in range(i + 1, depth):
                norms[i, j] = spectral(product)
                product = self.layers[j][0] * product
        for i in range(depth + 1):
            norms[i, depth] = self.upper_start[i]
        return norms


class Descent:
    """A run, step by step, in balls of as many bits as it is given, [6]."""

    def __init__(self, problem: Problem, start: list[float], learning_rate: float, precision: int):
        self.precision, self.steps, self.rate = precision, 0, arb(learning_rate)
        with ctx.workprec(precision):
            self.objective = Objective(problem)
            self.point = self.objective.layers(start)

    @property
    def time(self) -> arb:
        """Learning rate x step."""
        return self.steps * self.rate

    @property
    def next_time(self) -> arb:
        """That of the next step."""
        return (self.steps + 1) * self.rate

    def advance(self) -> None:
        """One step of descent."""
        with ctx.workprec(self.precision):
            slopes = self.objective.gradient(self.point)
            self.point = [w - self.rate * g for w, g in zip(self.point, slopes, strict=True)]
        self.steps += 1


def disturbed(
    norms: dict[tuple[int, int], arb], moved: list[arb], depth: int
) -> dict[tuple[int, int], arb]:
    """T_ij(rho), [4]."""
    reach = dict[tuple[int, int], arb]()
    for j in range(depth + 1):
        for i in range(j + 1):
            terms = (norms[k, j] * moved[k - 1] * reach[i, k - 1] for k in range(i + 1, j + 1))
            reach[i, j] = norms[i, j] + sum(terms, arb(0))
    return reach


def convolved(left: list[arb_mat], right: list[arb_mat], k: int) -> arb_mat:
    """The coefficient k of a product; a list is all that a factor has, or reaches beyond k."""
    first, end = max(0, k + 1 - len(right)), min(k + 1, len(left))
    if first >= end:
        return arb_mat(left[0].nrows(), right[0].ncols())
    return reduce(add, (left[i] * right[k - i] for i in range(first, end)))


def dot(left: list[arb], right: list[arb]) -> arb:
    """The last coefficient that is known of a product of two series of as many coefficients."""
    return sum(map(mul, left, reversed(right)), arb(0))


def softmax(outputs: list[arb]) -> list[arb]:
    """exp(z_c) / sum of all exp(z), with z shifted to the size of one."""
    shift = max(map(float, outputs), default=0.0)
    grown = [(each - shift).exp() for each in outputs]
    whole = sum(grown, arb(0))
    return [each / whole for each in grown]


def crossing(left: list[arb], right: list[arb], last: int) -> arb:
    """The sum over i + l > q of |X[i]| |Y[l]|, [2]."""
    tails = [*accumulate(reversed(right), initial=arb(0))][::-1]  # tails[l]: from l on
    return sum(
        (size * tails[last + 1 - i] for i, size in enumerate(left) if last + 1 - i < len(tails)),
        arb(0),
    ).upper()


def sizes(coefficients: list[arb_mat]) -> list[arb]:
    """Norms of coefficients: the first one's is spectral."""
    return [spectral(coefficients[0]), *map(norm, coefficients[1:])]


def total(numbers: list[arb]) -> arb:
    """The sum, rounded up."""
    return sum(numbers, arb(0)).upper()


def at_least_zero(number: arb) -> arb:
    """An upper bound on the larger of a number and zero; NaN if it is."""
    return arb(0) if number <= 0 else number.upper()


def identity(size: int) -> arb_mat:
    """The identity matrix."""
    return arb_mat(size, size, [float(i == j) for i in range(size) for j in range(size)])


def root(square: arb) -> arb:
    """The square root, rounded up."""
    return square.upper().sqrt().upper()


def euclidean(numbers: Iterable[arb]) -> arb:
    """The Euclidean norm, rounded up."""
    return root(sum((x * x for x in numbers), arb(0)))


def norm(matrix: arb_mat) -> arb:
    """The Frobenius norm, rounded up."""
    return euclidean(matrix.entries())


def spectral(matrix: arb_mat) -> arb:
    """An upper bound on the spectral norm, [7]."""
    turned = matrix.transpose()
    power = matrix * turned if matrix.nrows() < matrix.ncols() else turned * matrix
    if power.nrows() == 1:
        return root(power[0, 0])
    for _ in range(4):
        power = power * power
    size = norm(power)
    for _ in range(5):
        size = root(size)
    return size


def distance(one: Layers, other: Layers) -> arb:
    """The Euclidean distance, enclosed."""
    entries = (x for a, b in zip(one, other, strict=True) for x in (a - b).entries())
    square = sum((x * x for x in entries), arb(0))
    return square.sqrt() if square > 0 else arb(0).union(root(square))


def rounded_up(number: arb) -> float:
    """The least double that is proven to be no smaller."""
    rounded = float(number)
    while not number <= rounded < inf:
        if not rounded < inf:  # NaN, too
            return inf
        rounded = nextafter(rounded, inf)
    return rounded


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
    if isinstance(content, dict) and content.get("format") == OLDER:
        raise Rejected(
            f"it is of the older kind {OLDER!r}, a tube around a run; prove the run again."
        )
    names = "format network loss weight_decay start order precision times radii runs sha256"
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
    kind = loss.get("kind") if isinstance(loss, dict) else None
    if not isinstance(kind, str) or kind not in LOSSES:
        raise Rejected(f"the loss must be of the kind {', '.join(LOSSES)}.")
    _require_keys(loss, "loss", ["kind", *_PARTS[kind]])
    inputs, targets, labels, scale = [], [], [], 0.5
    if kind == "target":
        targets = _table(loss["target"], "target", outputs, widths[0])
    else:
        inputs = _table(loss["inputs"], "inputs", None, widths[0])
    if kind == "regression":
        targets = _table(loss["targets"], "targets", len(inputs), outputs)
        scale = _positive(loss["scale"], "scale")
    if kind == "cross-entropy":
        labels = _list(loss["labels"], "labels", len(inputs))
        for i, label in enumerate(labels):
            _whole(label, f"labels[{i}]", 0, outputs - 1)
    return Problem(widths, readout, kind, inputs, targets, labels, scale, decay)


_PARTS = {
    "target": ["target"],
    "regression": ["inputs", "targets", "scale"],
    "cross-entropy": ["inputs", "labels"],
}


def _claim(content: dict[str, Any]) -> Claim:
    problem = parse_problem(content)
    size = sum(a * b for a, b in pairwise(problem.widths))
    times = _vector(content["times"], "times", None)
    if len(times) < 2 or times[0] != 0 or any(a >= b for a, b in pairwise(times)):
        raise Rejected("times must begin with 0 and increase.")
    return Claim(
        problem=problem,
        start=_vector(content["start"], "start", size),
        order=_whole(content["order"], "order", 1, MOST_ORDERS),
        precision=_whole(content["precision"], "precision", 64, MOST_BITS),
        times=times,
        radii=_vector(content["radii"], "radii", len(times), least=0.0),
        runs=[_run(each, f"runs[{i}]") for i, each in enumerate(_list(content["runs"], "runs"))],
    )


def _run(value: Any, name: str) -> Run:
    _require_keys(value, name, ["learning_rate", "precision", "lower", "upper"])
    upper = _vector(value["upper"], f"{name}.upper", None, least=0.0)
    return Run(
        learning_rate=_positive(value["learning_rate"], f"{name}.learning_rate"),
        precision=_whole(value["precision"], f"{name}.precision", 64, MOST_BITS_OF_RUNS),
        lower=_vector(value["lower"], f"{name}.lower", len(upper), least=0.0),
        upper=upper,
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


def _vector(value: Any, name: str, count: int | None, least: float | None = None) -> list[float]:
    return [_number(x, f"{name}[{i}]", least) for i, x in enumerate(_list(value, name, count))]


def _whole(value: Any, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Rejected(f"{name} must be a whole number from {least} to {most}.")
    return value


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
