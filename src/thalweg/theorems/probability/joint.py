"""How likely a Gaussian start is balanced enough for the margin that it has.

arora2019 bounds the probability of each by itself and leaves open how likely they come together.
For a chain with one output, entries from N(0, s^2) and a target of norm 1, let J_K(s) be the event

    c > 0  and  max_j |W_{j+1}^T W_{j+1} - W_j W_j^T|_F <= c^2 / K,

c = 1 - |W_N ... W_1 - target|; K = 256 N^3 is what their Theorem 1 asks for. The direction of the
product is independent of its norm and of the imbalances (`RotationInvariance`), and is integrated
exactly: a sample contributes the share of a cap. What is left of the event is narrow mainly in the
norm of the last layer, which is drawn from an interval outside of which the event is impossible,
and weighted by its density.

At an s below about 1 the probability is largest; it falls with K like a power that grows with the
widths, see `scaling_exponent`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from thalweg._checks import InputError, require_count, require_positive
from thalweg.network import LinearNetwork
from thalweg.theorems.probability.gaussian_products import (
    GaussianChain,
    Layers,
    PerSample,
    products,
)
from thalweg.theorems.probability.sampling import CONFIDENCE, Proportion
from thalweg.theorems.probability.spheres import margin_share
from thalweg.theorems.settings.matrix_approximation import largest_imbalance

Grid = Float[np.ndarray, "strictness scales"]

_CHUNK = 50_000  # samples at a time: bounds the memory


@dataclass(frozen=True, eq=False)
class JointProbability:
    """P[J_K(s)] over a grid of K and s.

    Args:
        strictness: the values of K.
        scales: the values of s.
        estimate: the probability, for each K and s.
        error: its standard error.
        hits: how many samples contribute; below some tens of them the error is not to be trusted.
    """

    strictness: Float[np.ndarray, " strictness"]
    scales: Float[np.ndarray, " scales"]
    estimate: Grid
    error: Grid
    hits: Int[np.ndarray, "strictness scales"]

    @property
    def interval(self) -> tuple[Grid, Grid]:
        """Where the probability lies, with the confidence of `sampling`, for many hits."""
        width = scipy.stats.norm.isf((1 - CONFIDENCE) / 2) * self.error
        return np.maximum(self.estimate - width, 0.0), np.minimum(self.estimate + width, 1.0)

    @property
    def best(self) -> tuple[Float[np.ndarray, " strictness"], Float[np.ndarray, " strictness"]]:
        """For each K the largest probability over the scales, and the scale."""
        where = np.argmax(self.estimate, axis=1)
        return self.estimate[np.arange(len(where)), where], self.scales[where]


def joint_probability(
    widths: Sequence[int], scales: Any, strictness: Any, samples: int, seed: int
) -> JointProbability:
    """How likely a Gaussian start with one output has a margin c and imbalances up to c^2 / K.

    Args:
        widths: d_0, ..., d_N with d_N = 1; at least two layers.
        scales: standard deviations s of the entries, for a target of norm 1.
        strictness: the values of K; 256 N^3 for arora2019's Theorem 1.
        samples: how many networks to draw; each serves all scales and all K.
        seed: of the generator.
    """
    chain = _with_one_output(widths)
    grid = np.atleast_1d(np.asarray(scales, float))
    factors = np.atleast_1d(np.asarray(strictness, float))
    require_positive("scales", grid)
    require_positive("strictness", factors)
    count = require_count("samples", samples)
    generator = np.random.default_rng(seed)
    sums, squares = np.zeros((2, len(factors), len(grid)))
    hits = np.zeros((len(factors), len(grid)), int)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        layers, places = _unit_layers(chain, size, generator), generator.random(size)
        for row, factor in enumerate(factors.tolist()):
            shares = _contributions(chain, layers, places, factor, grid)
            sums[row] += shares.sum(axis=1)
            squares[row] += (shares**2).sum(axis=1)
            hits[row] += (shares > 0).sum(axis=1)
    mean = sums / count
    error = np.sqrt(np.maximum(squares / count - mean**2, 0) / count)
    return JointProbability(factors, grid, mean, error, hits)


def _with_one_output(widths: Sequence[int]) -> GaussianChain:
    chain = GaussianChain(LinearNetwork(widths).widths)
    if chain.depth < 2 or not chain.one_output:
        raise InputError(
            "`widths` must be of at least two layers with one output: with more outputs the "
            f"direction of the product cannot be integrated; got {list(widths)}."
        )
    return chain


def _unit_layers(chain: GaussianChain, samples: int, generator: np.random.Generator) -> Layers:
    """Layers of scale 1 with a last one of norm 1; the first up to a rotation of the input.

    Only W_1 W_1^T matters of the first layer. It is the same for the lower triangular factor of
    Bartlett, with Gaussians below the diagonal and chi variables of d_0, d_0 - 1, ... on it.
    """
    features, width = chain.widths[:2]
    if features > width:
        reduced = GaussianChain((width, *chain.widths[1:]))
        layers = list(reduced.draw(samples, generator))
        degrees = features - np.arange(width)
        layers[0] = np.tril(layers[0], -1)
        diagonal = np.arange(width)
        layers[0][:, diagonal, diagonal] = np.sqrt(generator.chisquare(degrees, (samples, width)))
    else:
        layers = list(chain.draw(samples, generator))
    layers[-1] /= np.linalg.norm(layers[-1], axis=(1, 2), keepdims=True)
    return tuple(layers)


def _contributions(
    chain: GaussianChain, layers: Layers, places: PerSample, factor: float, scales: np.ndarray
) -> Float[np.ndarray, "scales alive"]:
    """What each sample adds to the probability: density times length times share of a cap."""
    depth = chain.depth
    low, high = _possible_norms(layers, factor, depth)
    last = low + places * (high - low)
    scaled = (*layers[:-1], layers[-1] * last[:, None, None])
    imbalances = largest_imbalance(scaled)
    norms = np.linalg.norm(products(scaled), axis=(1, 2))
    alive = factor * imbalances <= norms ** (2 / depth)  # else c <= min(1, |W|) at no scale
    weights = (high - low)[alive] * scipy.stats.chi.pdf(last[alive], chain.widths[-2])
    margins = scales[:, None] * np.sqrt(factor * imbalances[alive])
    lengths = scales[:, None] ** depth * norms[alive]
    return weights * margin_share(chain.widths[0], margins, lengths)


def _possible_norms(layers: Layers, factor: float, depth: int) -> tuple[PerSample, PerSample]:
    """An interval for the norm of the last layer that no event J_K(s), at any s, leaves.

    With the last layer sqrt(x) u, m = u M u^T, M = W_{N-1} W_{N-1}^T and the norm y of
    u W_{N-1} ... W_1, the imbalance is at least |x - m|, and the event needs a c of at most
    min(1, |W|), hence |x - m| <= x^(1/N) r with r = y^(2/N) / K. As x^(1/N) is concave, x lies
    above m - m^(1/N) r, below the crossing of its tangent, and below max(2 m, (2 r)^(N/(N-1))).
    """
    row = layers[-1]
    behind = row @ layers[-2]
    m = np.sum(behind**2, axis=(1, 2))
    r = np.linalg.norm(products(layers), axis=(1, 2)) ** (2 / depth) / factor
    reach = m ** (1 / depth) * r
    slope = reach / (depth * m)
    tangent = np.where(slope < 1, m + reach / np.where(slope < 1, 1 - slope, 1), np.inf)
    highest = np.minimum(tangent, np.maximum(2 * m, (2 * r) ** (depth / (depth - 1))))
    return np.sqrt(np.maximum(m - reach, 0)), np.sqrt(highest)


def joint_proportion(
    widths: Sequence[int], scale: float, strictness: float, samples: int, seed: int
) -> Proportion:
    """P[J_K(s)] by drawing whole networks and looking: the plain way, for any likely event."""
    chain = GaussianChain(_with_one_output(widths).widths, scale)
    generator = np.random.default_rng(seed)
    successes = 0
    for start in range(0, samples, _CHUNK):
        layers = chain.draw(min(_CHUNK, samples - start), generator)
        target = np.eye(1, chain.widths[0])
        margins = 1 - np.linalg.norm(products(layers) - target, axis=(1, 2))
        balanced = strictness * largest_imbalance(layers) <= margins**2
        successes += int(np.sum(balanced & (margins > 0)))
    return Proportion(successes, samples)


def scalar_chain_limit(depth: int, scale: float) -> float:
    """The limit of K^(N-1) P[J_K(s)] for large K, where all widths are 1.

        2^(N-1) integral (2 pi s^2)^(-N/2) exp(-N w^2 / (2 s^2)) (c(w)^2 / w)^(N-1) dw

    over 0 < w^N < 2, with c(w) = 1 - |w^N - 1|. Close to the balanced set all |w_j| equal w;
    each difference of squares may take a length of 2 c^2 / K, which is c^2 / (K w) of w_j; half of
    the signs have a positive product.
    """
    count = require_count("depth", depth, least=2)
    require_positive("scale", scale)

    def density(w: float) -> float:
        margin = 1 - abs(w**count - 1)
        gaussians = (2 * pi * scale**2) ** (-count / 2) * np.exp(-count * w**2 / (2 * scale**2))
        return float(gaussians * (margin**2 / w) ** (count - 1))

    halves = ((0.0, 1.0), (1.0, 2 ** (1 / count)))
    parts = [scipy.integrate.quad(density, *ends, epsabs=0.0, epsrel=1e-12)[0] for ends in halves]
    return float(2 ** (count - 1) * sum(parts))


def scaling_exponent(widths: Sequence[int]) -> float:
    """The power e of max_s P[J_K(s)] ~ K^-e: what a tube around the balanced set weighs.

    For two layers e = 1 + (d_1 - 1)(d_0 + 1) / 2: of the directions across the balanced set d_1 are
    bounded by c^2 / K itself and (d_1 - 1)(d_0 - 1) by its root. For widths 1, e = N - 1. By
    counting, and as measured; proven only for widths 1, by `scalar_chain_limit`.
    """
    chain = _with_one_output(widths)
    if set(chain.widths) == {1}:
        return float(chain.depth - 1)
    if chain.depth == 2:
        features, width = chain.widths[:2]
        return 1 + (width - 1) * (features + 1) / 2
    raise InputError(
        f"The exponent is known for two layers and for widths 1, got {list(widths)}; measure it."
    )
