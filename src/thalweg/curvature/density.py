"""How a large operator's eigenvalues are distributed, from products with random vectors.

For a unit vector v and the projection T of H after m Lanczos steps from v, with eigenvalues theta_i
and eigenvectors s_i,

    v^T f(H) v = sum_i s_i[0]^2 f(theta_i)    for polynomials f up to degree 2 m - 1

(Gauss quadrature). Over random v the left side has the mean tr f(H) / p, the integral of f over the
distribution of eigenvalues; so the theta_i with the weights s_i[0]^2, averaged over several v,
stand for that distribution [ubaru2017]. Re-orthogonalisation keeps copies of eigenvalues out.

[ubaru2017] S. Ubaru, J. Chen, Y. Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature", SIAM J. Matrix Anal. Appl. 38, 2017.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import require_count, require_positive
from thalweg._shown import shown
from thalweg._typing import AnyWeights
from thalweg.curvature.operators import Operator, as_operator, products_of, require_symmetric
from thalweg.krylov.space import Product, Space


@shown
class SpectralDensity(NamedTuple):
    """A distribution of eigenvalues: nodes with weights that sum to 1 over all probes.

    Attributes:
        nodes: where, one row per probe; padded with zeros of weight zero.
        weights: how much.
        matvecs: the products that it took.
    """

    nodes: Float[np.ndarray, "probes steps"]
    weights: Float[np.ndarray, "probes steps"]
    matvecs: int

    def mean_of(self, values: Float[np.ndarray, "probes steps"]) -> tuple[float, float]:
        """The mean of a function of the eigenvalues, given at the nodes, and its standard error."""
        by_probe = np.sum(self.weights * values, axis=1) * len(self.weights)
        spread = by_probe.std(ddof=1) / np.sqrt(by_probe.size) if by_probe.size > 1 else np.inf
        return float(by_probe.mean()), float(spread)

    def smoothed(
        self, places: Float[np.ndarray, " places"], width: float
    ) -> Float[np.ndarray, " places"]:
        """The density at these places, each node spread by a Gaussian of this width."""
        require_positive("width", width)
        away = (places[:, None] - self.nodes.ravel()) / width
        bells = np.exp(-(away**2) / 2) / (width * np.sqrt(2 * np.pi))
        return bells @ self.weights.ravel()


@checked
def spectral_density(
    objective: Operator,
    weights: AnyWeights = None,
    *,
    probes: int = 8,
    steps: int = 64,
    seed: int = 0,
) -> SpectralDensity:
    """The distribution of the Hessian's eigenvalues; costs probes x steps products.

    A symmetric operator by itself is given without weights, see `extreme_eigenvalues`.
    """
    operator = as_operator(objective, weights)
    probes, steps = require_count("probes", probes), require_count("steps", steps)
    random = np.random.default_rng(require_count("seed", seed, least=0))
    matvecs, product = require_symmetric(operator), products_of(operator)
    steps = min(steps, operator.size)
    nodes, shares = np.zeros((probes, steps)), np.zeros((probes, steps))
    for probe in range(probes):
        space = _krylov_space(product, random.standard_normal(operator.size), steps)
        nodes[probe, : space.used] = space.values
        shares[probe, : space.used] = space.coordinates[0] ** 2 / probes
        matvecs += space.products
    return SpectralDensity(nodes, shares, matvecs)


def _krylov_space(product: Product, start: Float[np.ndarray, " size"], steps: int) -> Space:
    """The Krylov space of a start after so many steps, or fewer where it is exhausted."""
    space = Space(product, start.size, steps)
    space.extend(start)
    while space.used < steps and space.extend_by_image():
        pass
    return space
