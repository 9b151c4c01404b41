"""Products of Gaussian matrices: how balanced the layers are, how long and where the product is.

A chain W_N ... W_1 has independent entries from N(0, s^2) in layers of widths d_0, ..., d_N. With
one output, d_N = 1, two facts of ours replace estimates by laws:

    |W_N ... W_1|^2  =  s^(2N) chi2_{d_0} chi2_{d_1} ... chi2_{d_{N-1}},    independent,
    the direction of W_N ... W_1 is uniform, and independent of its norm and of all imbalances.

The first is found by multiplying from the output: given the row w = W_N ... W_{j+1}, w W_j has
independent entries from N(0, s^2 |w|^2). The second holds because W_1 -> W_1 O, with O orthogonal,
changes neither the law nor W_1 W_1^T, and turns the product by O.
"""

from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np
import scipy
from jaxtyping import Float
from typing_extensions import override

from thalweg.certificates import AbstractTheorem, Claim, requirement, rounding
from thalweg.network import LinearNetwork
from thalweg.theorems.probability.sampling import CONFIDENCE, Proportion
from thalweg.theorems.settings.matrix_approximation import largest_imbalance

Layers = tuple[Float[np.ndarray, "samples _ _"], ...]
PerSample = Float[np.ndarray, " samples"]


@dataclass(frozen=True)
class GaussianChain:
    """Layers of these widths, the input's first, with independent entries from N(0, scale^2)."""

    widths: tuple[int, ...]
    scale: float = 1.0

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.widths) - 1

    @property
    def hidden(self) -> int:
        """d_1 ... d_{N-1}."""
        return prod(self.widths[1:-1])

    @property
    def one_output(self) -> bool:
        """Whether the product is a row."""
        return self.widths[-1] == 1

    def draw(self, samples: int, generator: np.random.Generator) -> Layers:
        """The layers of that many networks, along the first axis."""
        shapes = LinearNetwork(self.widths).shapes
        return tuple(self.scale * generator.standard_normal((samples, *s)) for s in shapes)

    def draw_squared_norms(self, samples: int, generator: np.random.Generator) -> PerSample:
        """|W_N ... W_1|^2 of a chain with one output, from its law: without any matrix."""
        factors = [generator.chisquare(width, samples) for width in self.widths[:-1]]
        return self.scale ** (2 * self.depth) * np.prod(factors, axis=0)

    @property
    def expected_squared_norm(self) -> float:
        """E |W_N ... W_1|^2 for one output."""
        return self.scale ** (2 * self.depth) * self.widths[0] * self.hidden

    @property
    def expected_squared_imbalances(self) -> tuple[float, ...]:
        """E |W_{j+1}^T W_{j+1} - W_j W_j^T|_F^2 for j = 1, ..., N - 1.

        With a = d_{j+1}, d = d_j and b = d_{j-1} it is s^4 d ((a - b)^2 + (d + 1)(a + b)): each of
        the d diagonal entries has the mean square (a - b)^2 + 2 (a + b), each other one a + b.
        """
        triples = zip(self.widths[2:], self.widths[1:-1], self.widths[:-2], strict=True)
        return tuple(self.scale**4 * d * ((a - b) ** 2 + (d + 1) * (a + b)) for a, d, b in triples)


def products(layers: Layers) -> Float[np.ndarray, "samples outputs features"]:
    """W_N ... W_1 of each network, multiplied from the output, where it is thinnest."""
    product = layers[-1]
    for layer in reversed(layers[:-1]):
        product = product @ layer
    return product


def _one_output(chain: GaussianChain) -> Claim:
    return requirement("the chain has one output", chain.one_output)


class ImbalanceOfTwoLayers(AbstractTheorem[GaussianChain]):
    """The imbalance of two Gaussian layers is rarely far above its mean square.

        P[|A^T A - B B^T|_F >= k s^2 sqrt(2 d (a + b)^2 + d^2 (a + b))] <= 1 / k^2

    for A (a x d) = W_2 and B (d x b) = W_1 with independent entries from N(0, s^2), and k >= 1. The
    root is an upper bound; the exact mean square, with -2ab where the print has -ab, is

        E |A^T A - B B^T|_F^2 = s^4 d ((a - b)^2 + (d + 1)(a + b)),

    with which the same inequality of Markov holds, and says more.
    """

    reference: ClassVar[str] = "arora2019:lemma10"

    factor: float = 2.0
    samples: int = 20_000
    seed: int = 0

    @override
    def assumptions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        two = requirement("there are two layers", subject.depth == 2)
        return two, Claim("1 <= k", 1.0, self.factor)

    @override
    def conclusions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        generator = np.random.default_rng(self.seed)
        found = largest_imbalance(subject.draw(self.samples, generator))
        exact, printed = subject.expected_squared_imbalances[0], printed_squared_imbalance(subject)
        above, above_exact = (
            Proportion.of(found >= self.factor * sqrt(square)) for square in (printed, exact)
        )
        limit = self.factor**-2
        return (
            Claim("E |A^T A - B B^T|_F^2 <= the printed bound", exact, printed, rounding(exact)),
            above.at_most("P(|A^T A - B B^T|_F >= k sqrt(printed bound)) <= 1 / k^2", limit),
            above_exact.at_most("P(|A^T A - B B^T|_F >= k sqrt(E |.|_F^2)) <= 1 / k^2", limit),
        )


def printed_squared_imbalance(chain: GaussianChain) -> float:
    """s^4 (2 d (a + b)^2 + d^2 (a + b)), the bound on E |A^T A - B B^T|_F^2 for two layers."""
    b, d, a = chain.widths
    return chain.scale**4 * (2 * d * (a + b) ** 2 + d**2 * (a + b))


def small_ball_constant(chain: GaussianChain, samples: int, seed: int) -> float:
    """The least C_0 for entries of the product, sup_e P[|g| <= e sqrt(Var g)] / (N e^(1/N)).

    Measured, over the e below which at least a thousandth of the samples lies: further down the
    sample is too small to tell.
    """
    ordered = np.sort(_standard_entries(chain, samples, np.random.default_rng(seed)))
    share = np.arange(1, samples + 1) / samples
    seen = share >= 1e-3
    return float(np.max(share[seen] / ordered[seen] ** (1 / chain.depth)) / chain.depth)


def _standard_entries(
    chain: GaussianChain, samples: int, generator: np.random.Generator
) -> PerSample:
    """|g| / sqrt(Var g) of an entry g = s^N Z chi_{d_1} ... chi_{d_{N-1}}, from its law."""
    one_feature = GaussianChain((1, *chain.widths[1:]))
    squares = one_feature.draw_squared_norms(samples, generator)
    return np.sqrt(squares / one_feature.expected_squared_norm)


class SmallBall(AbstractTheorem[GaussianChain]):
    """An entry of a product of Gaussian matrices is rarely far below its standard deviation.

        P[|g| <= e sqrt(Var g)] <= C_0 N e^(1/N),    e > 0,

    for a multilinear polynomial g of degree N of independent centred Gaussian numbers (the print
    leaves out "centred"). Its constant C_0 is only known to exist. Checked here for the polynomials
    that it is needed for, the entries of W_N ... W_1 with one output, whose law is
    s^N Z chi_{d_1} ... chi_{d_{N-1}}: there C_0 = 1 is enough, as far as can be measured.
    """

    reference: ClassVar[str] = "arora2019:lemma11"

    constant: float = 1.0
    samples: int = 100_000
    seed: int = 0

    @override
    def assumptions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        return (_one_output(subject),)

    @override
    def conclusions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        found = _standard_entries(subject, self.samples, np.random.default_rng(self.seed))
        radii = np.linspace(0.05, 1.5, 30)  # of e^(1/N)
        shares = [Proportion.of(found <= radius**subject.depth) for radius in radii]
        lesser = np.array([share.estimate for share in shares])
        noise = lesser - np.array([share.interval[0] for share in shares])
        statement = f"P(|g| <= e sqrt(Var g)) <= C_0 N e^(1/N), in {self.samples} draws"
        return (Claim(statement, lesser, self.constant * subject.depth * radii, noise),)


class NormOfProduct(AbstractTheorem[GaussianChain]):
    """The product of a Gaussian chain with one output has a norm of a known order.

        P[D s^(2N) (C_1 N)^(-2N) <= |W|^2 <= C_1 d_0^2 D s^(2N)] >= C_2,    D = d_1 ... d_{N-1},

    with C_1 = max(2, 2 C_0) / (1 - C_2) and the constant C_0 of `SmallBall`. By the exact law
    E |W|^2 = s^(2N) d_0 D, so that Markov's inequality gives d_0 in place of d_0^2 (ours). Where
    the proof prints f^2 >= g^2, f >= g^2 is meant.
    """

    reference: ClassVar[str] = "arora2019:lemma12"

    confidence: float = 0.9
    small_ball: float = 1.0
    samples: int = 50_000
    seed: int = 0

    @property
    def constant(self) -> float:
        """C_1."""
        return 2 * max(1.0, self.small_ball) / (1 - self.confidence)

    @override
    def assumptions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        return (
            _one_output(subject),
            Claim("0 < C_2", 0.0, self.confidence),
            Claim("C_2 < 1", self.confidence, 1.0),
        )

    @override
    def conclusions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        squares = subject.draw_squared_norms(self.samples, np.random.default_rng(self.seed))
        relative = squares / subject.expected_squared_norm * subject.widths[0]  # |W|^2 / (D s^2N)
        above_least = relative >= (self.constant * subject.depth) ** (-2 * subject.depth)
        features = subject.widths[0]
        return tuple(
            Proportion.of(above_least & (relative <= self.constant * most)).at_least(
                f"C_2 <= P(D s^2N (C_1 N)^-2N <= |W|^2 <= C_1 {name} D s^2N)", self.confidence
            )
            for name, most in (("d_0^2", features**2), ("d_0", features))
        )


class RotationInvariance(AbstractTheorem[GaussianChain]):
    """The product of a Gaussian chain with one output points in every direction alike.

    The distribution of W = W_N ... W_1 is rotation invariant: the squared cosine to any direction
    is distributed as Beta(1/2, (d_0 - 1)/2). Moreover the direction is independent of |W| and of
    all imbalances (ours), because W_1 -> W_1 O changes none of them. Checked by the distance of
    Kolmogorov and Smirnov, and by rank correlations, to the resolution of the sample.
    """

    reference: ClassVar[str] = "arora2019:lemma13"

    samples: int = 20_000
    seed: int = 0

    @override
    def assumptions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        several = requirement("there are at least two features", subject.widths[0] > 1)
        return _one_output(subject), several

    @override
    def conclusions(self, subject: GaussianChain, /) -> tuple[Claim, ...]:
        layers = subject.draw(self.samples, np.random.default_rng(self.seed))
        vectors = products(layers)[:, 0, :]
        norms = np.linalg.norm(vectors, axis=1)
        squares = (vectors[:, 0] / norms) ** 2
        law = scipy.stats.beta(0.5, (subject.widths[0] - 1) / 2)
        noise = float(scipy.stats.kstwo.isf(1 - CONFIDENCE, self.samples))
        together = float(scipy.stats.norm.isf((1 - CONFIDENCE) / 2)) / sqrt(self.samples)
        correlations = {"|W|": _rank_correlation(squares, norms)}
        if subject.depth > 1:
            imbalances = largest_imbalance(layers)
            correlations["the imbalance"] = _rank_correlation(squares, imbalances)
        most = f"{CONFIDENCE:.1%} quantile"
        return (
            Claim(f"max |cdf of cos^2 - Beta| <= its {most}", _distance(squares, law), noise),
            *(
                Claim(
                    f"|rank correlation of cos^2 and {name}| <= {most} of chance",
                    abs(value),
                    together,
                )
                for name, value in correlations.items()
            ),
        )


def _rank_correlation(one: PerSample, other: PerSample) -> float:
    ranks = (scipy.stats.rankdata(one), scipy.stats.rankdata(other))
    return float(np.corrcoef(*ranks)[0, 1])


def _distance(values: PerSample, law: Any) -> float:
    """The largest difference between the share of values below a point and the law's."""
    share = law.cdf(np.sort(values))
    steps = np.arange(len(values) + 1) / len(values)
    return float(max(np.max(steps[1:] - share), np.max(share - steps[:-1])))
