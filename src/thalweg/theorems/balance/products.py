"""Products of nearly balanced matrices (arora2019, claim 1 and lemmas 3 to 6).

The layers W_1, ..., W_N have the product W = W_N ... W_1, and nu is at least their imbalance: the
largest |W_{j+1}^T W_{j+1} - W_j W_j^T|_F. If nu = 0 the squares of all partial products are powers
of a layer's square, W_1^T ... W_n^T W_n ... W_1 = (W_1^T W_1)^n; the lemmas say how far they are
off where it is not.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import scipy
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, requirement, rounding
from thalweg.measurement import deficiency_margin
from thalweg.theorems.settings.matrix_approximation import (
    Approximation,
    largest_imbalance,
    spectral,
)


@dataclass(frozen=True, eq=False)
class Approach:
    """A matrix, another one that is no further from the target, and the target."""

    matrix: Any
    other: Any
    target: Any


class MarginBoundsRank(AbstractTheorem[Approach]):
    """What comes no further from the target than a matrix with a margin has full rank.

    If W has the deficiency margin c > 0 and |W' - Phi|_F <= |W - Phi|_F, then sigma_min(W') >= c.
    Equality: W' differs from Phi along the smallest singular direction alone.
    """

    reference: ClassVar[str] = "arora2019:claim1"

    @override
    def assumptions(self, subject: Approach, /) -> tuple[Claim, ...]:
        matrix, other, target = map(_matrix, (subject.matrix, subject.other, subject.target))
        c = _margin(matrix, target)
        near, far = np.linalg.norm(other - target), np.linalg.norm(matrix - target)
        return (
            Claim("0 < c", 0.0, c, rounding(np.linalg.norm(target))),
            Claim("|W' - Phi|_F <= |W - Phi|_F", near, far),
        )

    @override
    def conclusions(self, subject: Approach, /) -> tuple[Claim, ...]:
        matrix, other, target = map(_matrix, (subject.matrix, subject.other, subject.target))
        least = float(np.linalg.svd(other, compute_uv=False)[-1])
        c = _margin(matrix, target)
        noise = rounding(np.linalg.norm(target) + np.linalg.norm(other))
        return (Claim("c <= sigma_min(W')", c, least, noise),)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two matrices of one shape."""

    first: Any
    second: Any


class SingularValuesMoveLittle(AbstractTheorem[Pair]):
    """Singular values move no more than the matrix does.

        max_i |s_i(A) - s_i(B)| <= |A - B|_2,    |s(A) - s(B)|_2 <= |A - B|_F.

    Equality: A and B share their singular vectors.
    """

    reference: ClassVar[str] = "arora2019:lemma3"

    @override
    def assumptions(self, subject: Pair, /) -> tuple[Claim, ...]:
        return (requirement("same shape", np.shape(subject.first) == np.shape(subject.second)),)

    @override
    def conclusions(self, subject: Pair, /) -> tuple[Claim, ...]:
        first, second = _matrix(subject.first), _matrix(subject.second)
        moved = np.linalg.svd(first, compute_uv=False) - np.linalg.svd(second, compute_uv=False)
        change, noise = first - second, rounding(np.linalg.norm(first) + np.linalg.norm(second))
        top, whole = float(spectral(change)), np.linalg.norm(change)
        return (
            Claim("max |s_i(A) - s_i(B)| <= |A - B|_2", np.max(np.abs(moved)), top, noise),
            Claim("|s(A) - s(B)|_2 <= |A - B|_F", np.linalg.norm(moved), whole, noise),
        )


@dataclass(frozen=True, eq=False)
class Rotation:
    """Two sorted diagonals, largest first, and an orthogonal matrix."""

    first: Any
    second: Any
    orthogonal: Any


class RotatedDiagonals(AbstractTheorem[Rotation]):
    """A diagonal near a rotated one is near it unrotated, and nearly commutes with the rotation.

    With e = |D_1 - O D_2 O^T|_F: |D_1 - D_2|_F <= e and |D_1 - O D_1 O^T|_F <= 2 e.
    """

    reference: ClassVar[str] = "arora2019:lemma4"

    @override
    def assumptions(self, subject: Rotation, /) -> tuple[Claim, ...]:
        o = _matrix(subject.orthogonal)
        ends = [np.asarray(d, float) for d in (subject.first, subject.second)]
        least = min(float(np.min(d)) for d in ends)
        falls = min(float(np.min(-np.diff(d), initial=np.inf)) for d in ends)
        off = np.linalg.norm(o.T @ o - np.eye(len(o)))
        return (
            Claim("0 <= min d_i, over both diagonals", 0.0, least),
            Claim("0 <= min_i {d_i - d_{i+1}}, over both diagonals", 0.0, falls),
            Claim("|O^T O - I|_F <= 1e-10", off, 1e-10),
        )

    @override
    def conclusions(self, subject: Rotation, /) -> tuple[Claim, ...]:
        o = _matrix(subject.orthogonal)
        first, second = (np.diag(np.asarray(d, float)) for d in (subject.first, subject.second))
        e = np.linalg.norm(first - o @ second @ o.T)
        near, turned = np.linalg.norm(first - second), np.linalg.norm(first - o @ first @ o.T)
        # The matrix may be off from orthogonal by the 1e-10 that were allowed.
        noise = 4e-10 * (np.linalg.norm(first) + np.linalg.norm(second))
        return (
            Claim("|D_1 - D_2|_F <= e", near, e, noise),
            Claim("|D_1 - O D_1 O^T|_F <= 2 e", turned, 2 * e, noise),
        )


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers, first one first, with bounds of their imbalance, layer norms and product's norm.

    Bounds that are not given are the measured values.
    """

    weights: Any
    imbalance: float | None = None
    layer_norm: float | None = None
    product_norm: float | None = None

    @property
    def point(self) -> Approximation:
        """The layers' products."""
        shape = (np.shape(self.weights[-1])[0], np.shape(self.weights[0])[1])
        return Approximation.of(self.weights, np.zeros(shape))

    @property
    def nu(self) -> float:
        """The bound of the imbalance."""
        measured = float(largest_imbalance(self.weights))
        return measured if self.imbalance is None else self.imbalance

    @property
    def m(self) -> float:
        """The bound of the layers' spectral norms."""
        measured = float(np.max(self.point.layer_norms))
        return measured if self.layer_norm is None else self.layer_norm

    @property
    def c(self) -> float:
        """The bound of the product's spectral norm."""
        measured = float(spectral(self.point.product))
        return measured if self.product_norm is None else self.product_norm


def chain_claims(chain: Chain) -> tuple[Claim, ...]:
    """That the given bounds are bounds."""
    point = chain.point
    noise = rounding(np.max(point.layer_norms) ** 2)
    imbalance, norm = float(largest_imbalance(point.layers)), float(np.max(point.layer_norms))
    claims = [
        Claim("imbalance <= nu", imbalance, chain.nu, 0.0 if chain.imbalance is None else noise),
        Claim("|W_j|_2 <= M", norm, chain.m, 0.0 if chain.layer_norm is None else rounding(norm)),
    ]
    return tuple(claims)


class PowersOfProducts(AbstractTheorem[Chain]):
    """The square of a nearly balanced product is nearly a power of one layer's square.

    With M >= |W_j|_2, for the first n of N layers, n = 2, ..., N,

        |(W_n ... W_1)^T (W_n ... W_1) - (W_1^T W_1)^n|_F <= (1/2) nu M^(2(n-1)) n (n - 1),

    likewise for the last n with W_N W_N^T, and with err the bound for n = N

        sigma_min(W)^2 - err <= sigma_min(W_N)^(2N) if outputs <= features,
        sigma_min(W)^2 - err <= sigma_min(W_1)^(2N) if features <= outputs.

    The paper has (3/2) nu M^(2(n-1)) n^2. Proof of ours: with Q_i = A (W_i W_i^T)^i A^T for the
    product A of what comes after W_i, Q_{i-1} - Q_i replaces i - 1 factors W_i^T W_i by
    W_{i-1} W_{i-1}^T, each at the price nu, which adds up to 1 + ... + (n - 1). The paper prints
    the two cases of the last line swapped, which is false, and asks for wide hidden layers at the
    ends; min(hidden widths) >= min(outputs, features) is enough.
    """

    reference: ClassVar[str] = "arora2019:lemma5"

    @override
    def assumptions(self, subject: Chain, /) -> tuple[Claim, ...]:
        return chain_claims(subject)

    @override
    def conclusions(self, subject: Chain, /) -> tuple[Claim, ...]:
        point, nu, m = subject.point, subject.nu, subject.m
        n = np.arange(2, point.depth + 1)
        if n.size == 0:
            return ()
        first = np.array([_power_gap(point.layers[:count]) for count in n])
        mirrored = [layer.T for layer in reversed(point.layers)]
        last = np.array([_power_gap(mirrored[:count]) for count in n])
        bound, noise = nu * m ** (2 * (n - 1)) * n * (n - 1) / 2, rounding(m ** (2 * n))
        printed = 1.5 * nu * m ** (2 * (n - 1)) * n**2
        ahead = "|(W_n ... W_1)^T (W_n ... W_1) - (W_1^T W_1)^n|_F"
        behind = "|(W_N ... W_{N-n+1}) (W_N ... W_{N-n+1})^T - (W_N W_N^T)^n|_F"
        claims = (
            Claim(f"{ahead} <= (1/2) nu M^(2(n-1)) n (n - 1)", first, bound, noise),
            Claim(f"{behind} <= (1/2) nu M^(2(n-1)) n (n - 1)", last, bound, noise),
            Claim(f"{ahead} <= (3/2) nu M^(2(n-1)) n^2  (16)", first, printed, noise),
            Claim(f"{behind} <= (3/2) nu M^(2(n-1)) n^2  (17)", last, printed, noise),
        )
        return (*claims, *_least_values(point, float(bound[-1]), "W_N", "W_1"))


def printed_claims(chain: Chain) -> tuple[Claim, ...]:
    """Lemma 5's (18) as printed, the end layers swapped: false wherever widths differ."""
    point, n = chain.point, chain.point.depth
    return _least_values(point, 1.5 * chain.nu * chain.m ** (2 * (n - 1)) * n**2, "W_1", "W_N")


def _power_gap(layers: Any) -> float:
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    power = np.linalg.matrix_power(layers[0].T @ layers[0], len(layers))
    return float(np.linalg.norm(product.T @ product - power))


def _least_values(point: Approximation, err: float, narrow: str, wide: str) -> tuple[Claim, ...]:
    """(18), with the end layer for fewer outputs than features, and the one for fewer features."""
    outputs, features = point.product.shape
    hidden = [layer.shape[0] for layer in point.layers[:-1]]
    if min(hidden) < min(outputs, features):
        return ()
    least = {
        "W_1": float(np.linalg.svd(point.layers[0], compute_uv=False)[-1]),
        "W_N": float(np.linalg.svd(point.layers[-1], compute_uv=False)[-1]),
    }
    ends = [narrow] * (outputs <= features) + [wide] * (features <= outputs)
    low = float(point.smallest) ** 2 - err
    noise = rounding(np.max(point.layer_norms) ** (2 * point.depth))
    return tuple(
        Claim(
            f"sigma_min(W)^2 - err <= sigma_min({end})^(2N)",
            low,
            least[end] ** (2 * point.depth),
            noise,
        )
        for end in ends
    )


class LayerNorms(AbstractTheorem[Chain]):
    """Nearly balanced layers are no larger than the root of their product.

    If |W|_2 <= C and nu <= C^(2/N) / (30 N^2), then |W_j|_2 <= C^(1/N) 2^(1/(2N)), which is also
    claimed with the sharper `layer_norm_bound`.
    """

    reference: ClassVar[str] = "arora2019:lemma6"

    @override
    def assumptions(self, subject: Chain, /) -> tuple[Claim, ...]:
        point, n, c = subject.point, subject.point.depth, subject.c
        norm = float(spectral(point.product))
        allowed = c ** (2 / n) / (30 * n**2)
        noise = 0.0 if subject.product_norm is None else rounding(norm)
        return (
            chain_claims(subject)[0],
            Claim("|W|_2 <= C", norm, c, noise),
            Claim("nu <= C^(2/N) / (30 N^2)", subject.nu, allowed, rounding(allowed)),
        )

    @override
    def conclusions(self, subject: Chain, /) -> tuple[Claim, ...]:
        point, c = subject.point, subject.c
        norm, n = float(np.max(point.layer_norms)), subject.point.depth
        sharper = layer_norm_bound(subject.nu, c, n)
        return (
            Claim("|W_j|_2 <= C^(1/N) 2^(1/(2N))", norm, (c * 2**0.5) ** (1 / n), rounding(norm)),
            Claim("|W_j|_2 <= M(nu, C)", norm, sharper, rounding(norm)),
        )


def layer_norm_bound(nu: float, c: float, depth: int) -> float:
    """M(nu, C), above every |W_j|_2 of layers with imbalance <= nu and |W|_2 <= C.

    M^2 is the root m > h nu of (m - h nu)^N = C^2 + (nu / 2) N (N - 1) m^(N-1), h = (N - 1) // 2.
    Proof: by lemma 5 both end layers have |W_1|_2^(2N) <= C^2 + (nu / 2) N (N - 1) M^(2(N-1)),
    and every layer is h pairs or less from an end, each of which adds nu at most to |W_j|_2^2.
    Two layers of one unit each attain it.
    """
    if c == 0 and nu == 0:
        return 0.0
    root = c ** (2 / depth)
    unit = max(root, nu)  # in which nothing overflows
    root, nu = root / unit, nu / unit
    low = (depth - 1) // 2 * nu
    if root == 0:  # the root zero is none: the layers differ
        low = max(low, nu * 1e-6)
    high = low + 1.0
    while _excess(high, nu, root, depth) < 0:
        high *= 2
    found = scipy.optimize.brentq(_excess, low, high, args=(nu, root, depth), xtol=1e-15)
    return float((unit * found) ** 0.5)


def _excess(m: float, nu: float, root: float, depth: int) -> float:
    """Left less right side of the equation for M^2, where `root` is C^(2/N)."""
    growth = nu * depth * (depth - 1) / 2 * m ** (depth - 1)
    return (m - (depth - 1) // 2 * nu) ** depth - root**depth - growth


def _matrix(values: Any) -> np.ndarray:
    return np.atleast_2d(np.asarray(values, float))


def _margin(matrix: np.ndarray, target: np.ndarray) -> float:
    return float(deficiency_margin(jnp.asarray(matrix), jnp.asarray(target)))
