"""Where theorem 1's assumptions are missed and descent fails (arora2019, appendices C, D.6, D.7).

Both starts are in `adversarial`. Of the first, which is unbalanced but has a margin, only the first
entries w_1, ..., w_N of the layers move,

    w_j <- w_j - eta (P - 1) P / w_j,    P = w_1 ... w_N,

and from the first step on they alternate in sign and grow doubly exponentially. The second is
balanced without a margin: all layers are the identity and the target is symmetric with a negative
eigenvalue, which the even power of a symmetric matrix cannot reach.
"""

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from math import log
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from thalweg.adversarial import divergence_factor
from thalweg.certificates import (
    AbstractTheorem,
    AbstractTrainingTheorem,
    Case,
    Claim,
    Narrowed,
    identity,
    met,
    requirement,
    rounding,
)
from thalweg.theorems.settings.matrix_approximation import WhiteTraining, white_training

_DIGITS = Context(prec=60, Emax=10**17, Emin=-(10**17))  # products overflow at the fourth step


@dataclass(frozen=True)
class Unbalanced:
    """The start of `adversarial.diverging`, and how many steps of it to look at.

    Args:
        depth: N, even.
        learning_rate: for which it was made.
        margin: its deficiency margin c is this, or 3/4 if that is more.
        factor: A, from which on the layers differ; the proven one unless it is given.
        steps: how many.
    """

    depth: int
    learning_rate: float
    margin: float
    factor: float | None = None
    steps: int = 4

    @property
    def c(self) -> float:
        """The deficiency margin."""
        return max(self.margin, 0.75)

    @property
    def proven(self) -> float:
        """The factor A of `divergence_factor`."""
        return float(divergence_factor(self.depth, self.learning_rate, self.margin))

    @property
    def a(self) -> float:
        """The factor in use."""
        return self.proven if self.factor is None else self.factor

    def entries(self) -> list[tuple[Decimal, ...]]:
        """w_1, ..., w_N at the steps 0, 1, ..., to sixty digits and any exponent."""
        with localcontext(_DIGITS):
            root = Decimal(self.c) ** (Decimal(1) / self.depth)
            half, a, eta = self.depth // 2, Decimal(self.a), Decimal(self.learning_rate)
            found = [(root * a,) * half + (root / a,) * half]
            for _ in range(self.steps):
                product = _product(found[-1])
                found.append(tuple(w - eta * (product - 1) * product / w for w in found[-1]))
            return found

    def log_losses(self) -> Float[np.ndarray, " steps"]:
        """The logarithm of l = (P - 1)^2 / 2 at the steps 0, 1, ...."""
        with localcontext(_DIGITS):
            errors = [abs(_product(entries) - 1) for entries in self.entries()]
            return np.array([2 * float(error.ln()) - log(2) for error in errors])


def _product(entries: tuple[Decimal, ...]) -> Decimal:
    total = Decimal(1)
    for entry in entries:
        total *= entry
    return total


def printed_factor(depth: int, learning_rate: float, margin: float) -> float:
    """The A printed in claim 4, with which lemma 17 is false for c > .89 or so."""
    eta, c = learning_rate, max(margin, 0.75)
    last = (log(20) + (2 * depth - 1) * log(10) - 2 * depth * log(eta)) / (2 * depth - 2)
    gain = eta * (1 - c) * c ** ((depth - 1) / depth)
    return max((eta * depth) ** 0.5, 2 / gain, 2000.0, 20 / eta, float(np.exp(last)))


def _start_claims(start: Unbalanced) -> tuple[Claim, ...]:
    even = start.depth >= 2 and start.depth % 2 == 0
    claims = (
        requirement("the depth is even", even),
        requirement("0 < eta", start.learning_rate > 0),
        requirement("0 < c < 1", 0 < start.margin < 1),
    )
    if not met(claims):
        return claims
    return (*claims, Claim("the proven A <= A", start.proven, start.a))


class Divergence(AbstractTheorem[Unbalanced]):
    """From an unbalanced start descent may diverge, however large its deficiency margin.

    For even N and every eta and c < 1 the start of `adversarial.diverging` has the margin c or
    more and l(t) >= (2^N - 1)^2 / 2 for t >= 1. The A printed in the paper is too small for its
    proof where c > .89; `divergence_factor` has one that is not.
    """

    reference: ClassVar[str] = "arora2019:claim4"

    @override
    def assumptions(self, subject: Unbalanced, /) -> tuple[Claim, ...]:
        return _start_claims(subject)

    @override
    def conclusions(self, subject: Unbalanced, /) -> tuple[Claim, ...]:
        losses, floor = subject.log_losses(), 2 * log(2**subject.depth - 1) - log(2)
        first = 2 * log(1 - subject.c) - log(2)
        noise = float(rounding(1.0)) / (1 - subject.c)  # c^(1/N) and its powers, next to one
        return (
            Claim("log((1 - c)^2 / 2) <= log l(t)", first, losses, noise),
            Claim("log((2^N - 1)^2 / 2) <= log l(t) for t >= 1", floor, losses[1:]),
        )


class DoublyExponentialGrowth(AbstractTheorem[Unbalanced]):
    """The entries of the diverging start alternate in sign and grow doubly exponentially.

    For t >= 1 all w_j(t) have one sign, which alternates, and B(t) <= |w_j(t)| <= C(t) with

        B(1) = b A,    C(1) = max(1, eta) A,    B(t+1) = 9 C(t),    C(t+1) = eta C(t)^(2N-1),

    b = min(3/4, eta (1 - c) c^((N-1)/N)); B >= 2 and eta B^(2N-1) >= 20 C. In the print
    B(1) = min(eta, 1) A / 10, which is false for c > .89 or so.
    """

    reference: ClassVar[str] = "arora2019:lemma17"

    @override
    def assumptions(self, subject: Unbalanced, /) -> tuple[Claim, ...]:
        return _start_claims(subject)

    @override
    def conclusions(self, subject: Unbalanced, /) -> tuple[Claim, ...]:
        n, eta, c = subject.depth, subject.learning_rate, subject.c
        return _growth_claims(subject, min(0.75, eta * (1 - c) * c ** ((n - 1) / n)))


def printed_growth_claims(start: Unbalanced) -> tuple[Claim, ...]:
    """Lemma 17 with the B(1) of the print, which for c > .89 or so is false."""
    return _growth_claims(start, min(start.learning_rate, 1.0) / 10)


def _growth_claims(start: Unbalanced, first: float) -> tuple[Claim, ...]:
    """The claims of lemma 17 with B(1) = first * A, by logarithms."""
    n, eta, later = start.depth, start.learning_rate, start.entries()[1:]
    positive = [[entry > 0 for entry in entries] for entries in later]
    alternates = all(set(row) == {t % 2 == 0} for t, row in enumerate(positive))
    with localcontext(_DIGITS):
        sizes = np.array([[float(abs(w).ln()) for w in entries] for entries in later])
    low, high, bounds = log(first * start.a), log(max(1.0, eta) * start.a), []
    for _ in later:
        bounds.append((low, high))
        low, high = log(9) + high, log(eta) + (2 * n - 1) * high
    b, top = np.array(bounds).T
    noise = rounding(top)
    return (
        requirement("entries have one sign, which alternates", alternates),
        Claim("log B(t) <= min_j log |w_j(t)|", b, sizes.min(axis=1), noise),
        Claim("max_j log |w_j(t)| <= log C(t)", sizes.max(axis=1), top, noise),
        Claim(
            "log (20 C(t)) <= log (eta B(t)^(2N-1))",
            log(20) + top,
            log(eta) + (2 * n - 1) * b,
            noise,
        ),
        Claim("log 2 <= log B(t)", log(2), b),
    )


@dataclass(frozen=True, eq=False)
class EqualPath:
    """The eigenvalues d_i(t) that all layers share, and how far rounding may have got."""

    values: Float[np.ndarray, "times eigenvalues"]
    error: Float[np.ndarray, " times"]


def equal_path(
    eigenvalues: Float[np.ndarray, " eigenvalues"], depth: int, learning_rate: float, steps: int
) -> EqualPath:
    """The eigenvalues of the layers: d <- d - eta (d^N - lambda) d^(N-1) from d = 1.

    There is one d for each eigenvalue lambda of the target. What makes the layers differ grows per
    step by the factor 1 + eta max |d^N - lambda| max |d|^(N-2) at most; with two layers rounding
    does grow like that, until descent escapes.
    """
    d, error = np.ones(eigenvalues.shape), 0.0
    values, errors = [d], [error]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            gap = d**depth - eigenvalues
            slope = depth * d ** (2 * depth - 2) + (depth - 1) * gap * d ** (depth - 2)
            apart = 1 + learning_rate * np.max(np.abs(gap)) * np.max(np.abs(d)) ** (depth - 2)
            growth = max(float(np.max(np.abs(1 - learning_rate * slope))), float(apart))
            d = d - learning_rate * gap * d ** (depth - 1)
            error = error * growth + float(rounding(np.max(np.abs(d)) + 1))
            values.append(d)
            errors.append(error)
    return EqualPath(np.array(values), np.array(errors))


_COARSEST = 0.1  # a resolution above this part of what is looked at tells nothing


def _stalling_claims(training: WhiteTraining) -> tuple[Claim, ...]:
    start = training.start
    n, target = start.depth, start.target
    alike = start.is_square and all(np.array_equal(w, np.eye(len(target))) for w in start.layers)
    claims = (
        requirement("the depth is even", n % 2 == 0),
        requirement("all layers are the identity", alike),
    )
    if not alike:
        return claims
    skew = float(np.linalg.norm(target - target.T))
    lowest = float(np.linalg.eigvalsh((target + target.T) / 2)[0])
    return (
        *claims,
        Claim("|Phi - Phi^T|_F <= 1e-12 F", skew, 1e-12 * start.norm),
        Claim("lambda_min(Phi) < 0", lowest, 0.0, rounding(start.norm)),
    )


def _path_of(training: WhiteTraining) -> tuple[EqualPath, np.ndarray, np.ndarray]:
    """The shared eigenvalues at the recorded steps, and the target's with their vectors."""
    target = training.start.target
    eigenvalues, vectors = np.linalg.eigh((target + target.T) / 2)
    steps, eta = training.records[0], training.learning_rate
    path = equal_path(eigenvalues, training.start.depth, eta or 1.0, int(steps[-1]))
    return EqualPath(path.values[steps], path.error[steps]), eigenvalues, vectors


class _AbstractStalling(AbstractTrainingTheorem[WhiteTraining]):
    """What is proven of identity layers on such a target."""

    @override
    def narrowed(self, case: Case, /) -> Narrowed[WhiteTraining]:
        return white_training(case)

    @override
    def assumptions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        return _stalling_claims(subject)


class Stalling(_AbstractStalling):
    """From identity layers descent never reaches a symmetric target with a negative eigenvalue.

    For even N, at every learning rate and step l(t) >= (1/2) sum of lambda_i^2 over lambda_i < 0
    (the paper: of one of them), though the start is balanced and not stationary. In floating point
    two layers escape after hundreds of steps, unless the target is diagonal: the resolution grows
    as the asymmetry of the layers does.
    """

    reference: ClassVar[str] = "arora2019:claim5"

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        path, eigenvalues, _ = _path_of(subject)
        floor = float(np.sum(np.minimum(eigenvalues, 0) ** 2)) / 2
        with np.errstate(over="ignore", invalid="ignore"):
            losses = subject.records[1].loss
            # Layers x + a and x - a have the product x^2 - a^2.
            noise = rounding(losses) - np.min(eigenvalues) * path.error**2
        # What diverged has not arrived either; what rounding has taken over tells nothing.
        kept = np.isfinite(losses) & (noise <= _COARSEST * floor)
        statement = "(1/2) sum of negative lambda_i^2 <= l(t)"
        return (Claim(statement, floor, losses[kept], noise[kept]),)


class EqualLayers(_AbstractStalling):
    """From identity layers on a symmetric target all layers stay equal, and symmetric.

    W_j(t) = U diag(d(t)) U^T with the target's eigenvectors U and, for each eigenvalue lambda,
    d <- d - eta (d^N - lambda) d^(N-1) from d(0) = 1. The assumptions are those of claim 5; up to
    rounding, whose growth the resolution follows.
    """

    reference: ClassVar[str] = "arora2019:lemma18"

    @override
    def conclusions(self, subject: WhiteTraining, /) -> tuple[Claim, ...]:
        path, _, vectors = _path_of(subject)
        largest = np.max(np.abs(path.values), axis=1)
        kept = np.isfinite(largest) & (path.error <= _COARSEST * largest)
        values, error = path.values[kept], path.error[kept]
        expected = np.einsum("ik,tk,jk->tij", vectors, values, vectors)
        layers = [layer[kept] for layer in subject.records[1].layers]
        gaps = [np.linalg.norm(layer - expected, axis=(1, 2)) for layer in layers]
        noise = len(vectors) * error + rounding(np.max(np.abs(values), axis=1))
        return (identity("W_j(t) = U diag(d(t)) U^T", np.max(gaps, axis=0), noise),)
