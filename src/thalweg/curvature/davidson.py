"""Both ends of the spectrum of a large symmetric operator, from products with vectors.

The operator A is projected onto a growing space with the orthonormal basis V. The eigenpairs
(theta, x) of the projection V A V^T approximate those of A, and for each there is an eigenvalue of
A within

    |A x - theta x|,

which is computed, not estimated. The space grows by these residuals: from one start that is
Lanczos's method, from several it can use what is known from a nearby operator (Davidson's method
without a preconditioner). When the basis is full, the best approximations at both ends stay and the
rest is dropped (thick restart [wu2000]).

A residual proves that an eigenvalue is near, not that it is the last one. So before an end is
called converged, fresh random directions have to leave it where it is: this is what a start at an
eigenvector that used to be extreme, or a repeated eigenvalue, would otherwise get past. And where
eigenvalues crowd, the last one may lie beyond the residual of the one that was found, so an error
is ten residuals.

[wu2000] K. Wu, H. Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems",
    SIAM J. Matrix Anal. Appl. 22, 2000.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " size"]
Rows = Float[np.ndarray, "rows size"]
Product = Callable[[Vector], Vector]

_BASIS = 48  # vectors in the largest basis; each costs memory and two passes per product
_CAUTION = 10.0  # residuals per error, see above
_PROBES = 4  # products spent on fresh random directions before an end counts as converged


@dataclass(frozen=True)
class Pairs:
    """Eigenvalues at the ends that were sought, outermost first, with unit vectors as rows."""

    smallest: Float[np.ndarray, " low"]
    smallest_errors: Float[np.ndarray, " low"]
    smallest_vectors: Float[np.ndarray, "low size"]
    largest: Float[np.ndarray, " high"]
    largest_errors: Float[np.ndarray, " high"]
    largest_vectors: Float[np.ndarray, "high size"]
    products: int
    converged: bool


def extreme_pairs(
    product: Product,
    size: int,
    *,
    count: int = 1,
    ends: str = "both",
    tolerance: float = 1e-8,
    start: Rows | None = None,
    max_products: int = 5000,
    seed: int = 0,
) -> Pairs:
    """The `count` outermost eigenvalues at each end.

    Args:
        product: v -> A v for a symmetric A.
        size: the length of v.
        count: how many at each end.
        ends: which are sought, "smallest", "largest" or "both"; one may be much the harder.
        tolerance: the error that is asked for, as a part of the largest modulus.
        start: rows that are near eigenvectors at the ends. From several earlier points of a path
            they let the space foretell the next ones, as their combinations are in it.
        max_products: give up after so many products, and say so.
        seed: of the random directions.
    """
    space = _Space(product, size, np.random.default_rng(seed), max(_BASIS, 6 * count))
    for vector in [] if start is None else start:
        space.extend(vector)
    space.extend_randomly()
    settled: Float[np.ndarray, " ends"] | None = None
    while True:
        places = space.places(count, ends)
        residuals = _CAUTION * space.residual_norms(places)
        goal = tolerance * space.norm
        worst = int(np.argmax(residuals))
        done = bool(residuals[worst] <= goal)
        values = space.values[places]
        if space.exhausted or (done and settled is not None and _unmoved(values, settled, goal)):
            return _pairs(space, places, ends, residuals, settled, converged=True)
        if space.products >= max_products:
            return _pairs(space, places, ends, residuals, settled, converged=False)
        if done:
            settled = values
            space.probe()
        else:
            space.extend(space.residual(int(places[worst])))


def _unmoved(
    values: Float[np.ndarray, " ends"], settled: Float[np.ndarray, " before"], goal: float
) -> bool:
    return values.shape == settled.shape and bool(np.all(np.abs(values - settled) <= goal))


def _pairs(
    space: "_Space",
    places: np.ndarray,
    ends: str,
    residuals: Float[np.ndarray, " ends"],
    settled: Float[np.ndarray, " before"] | None,
    converged: bool,
) -> Pairs:
    """What was found; an error covers the residual, the last movement and rounding."""
    values = space.values[places]
    moved = np.zeros_like(values)
    if settled is not None and settled.shape == values.shape:
        moved = np.abs(values - settled)
    rounding = 4 * space.size * np.finfo(float).eps * space.norm
    errors = np.maximum(residuals, moved) + rounding
    vectors = space.vectors(places)
    split = {"smallest": places.size, "largest": 0, "both": places.size // 2}[ends]
    return Pairs(
        values[:split], errors[:split], vectors[:split],
        values[split:], errors[split:], vectors[split:],
        space.products, converged,
    )  # fmt: skip


@dataclass
class _Space:
    """An orthonormal basis, its image under the operator, and the projection's eigenpairs."""

    product: Product
    size: int
    random: np.random.Generator
    room: int
    products: int = 0
    exhausted: bool = False
    basis: Rows = field(init=False)
    images: Rows = field(init=False)
    used: int = field(init=False, default=0)
    values: Float[np.ndarray, " used"] = field(init=False)
    coordinates: Float[np.ndarray, "used used"] = field(init=False)
    _projection: Float[np.ndarray, "room room"] = field(init=False)

    def __post_init__(self):
        self.room = min(self.room, self.size)
        self.basis = np.empty((self.room, self.size))
        self.images = np.empty((self.room, self.size))
        self._projection = np.zeros((self.room, self.room))

    @property
    def norm(self) -> float:
        """The largest modulus seen, which approaches the spectral norm from below."""
        return max(float(np.max(np.abs(self.values))), np.finfo(float).tiny)

    def extend(self, direction: Vector) -> None:
        """Add a direction to the space; a random one where it is already inside."""
        if self.used == self.size:
            self.exhausted = True
            return
        if self.used == self.room:
            self._restart()
        new = self._orthonormal(direction)
        while new is None:
            new = self._orthonormal(self.random.standard_normal(self.size))
        image = np.asarray(self.product(new), dtype=float)
        self.products += 1
        self.basis[self.used], self.images[self.used] = new, image
        self.used += 1
        column = self.basis[: self.used] @ image
        self._projection[: self.used, self.used - 1] = column
        self._projection[self.used - 1, : self.used] = column
        active = self._projection[: self.used, : self.used]
        self.values, self.coordinates = np.linalg.eigh(active)
        self.exhausted = self.used == self.size

    def extend_randomly(self) -> None:
        """Add a random direction."""
        self.extend(self.random.standard_normal(self.size))

    def probe(self) -> None:
        """Follow a fresh random direction and its images for a while."""
        self.extend_randomly()
        for _ in range(_PROBES - 1):
            if not self.exhausted:
                self.extend(self.images[self.used - 1])

    def places(self, count: int, ends: str) -> np.ndarray:
        """Of the outermost values: the smallest ones, then the largest ones, outermost first."""
        low = np.arange(min(count, max(self.used // 2, 1)))
        high = self.used - 1 - low
        return {"smallest": low, "largest": high, "both": np.concatenate([low, high])}[ends]

    def residual(self, place: int) -> Vector:
        """A x - theta x."""
        coordinates = self.coordinates[:, place]
        return coordinates @ self.images[: self.used] - self.values[place] * (
            coordinates @ self.basis[: self.used]
        )

    def residual_norms(self, places: np.ndarray) -> Float[np.ndarray, " ends"]:
        """The norms of the residuals at these places."""
        return np.array([np.linalg.norm(self.residual(int(place))) for place in places])

    def vectors(self, places: np.ndarray) -> Rows:
        """The approximate eigenvectors at these places, as rows."""
        return self.coordinates[:, places].T @ self.basis[: self.used]

    def _orthonormal(self, direction: Vector) -> Vector | None:
        """The part outside of the space, as a unit vector; None where nothing but rounding is."""
        vector = direction / max(float(np.linalg.norm(direction)), np.finfo(float).tiny)
        for _ in range(2):  # twice is enough
            active = self.basis[: self.used]
            vector = vector - (active @ vector) @ active
            norm = float(np.linalg.norm(vector))
            if norm < 1e-8:
                return None
            vector = vector / norm
        active = self.basis[: self.used]
        vector = vector - (active @ vector) @ active  # what scaling up a small rest brought back
        return vector / np.linalg.norm(vector)

    def _restart(self) -> None:
        """Keep a third of the pairs at each end."""
        third = self.room // 3
        places = np.concatenate([np.arange(third), np.arange(self.used - third, self.used)])
        rotation = self.coordinates[:, places].T
        self.basis[: places.size] = rotation @ self.basis[: self.used]
        self.images[: places.size] = rotation @ self.images[: self.used]
        self.values = self.values[places]
        self.used = places.size
        self.coordinates = np.eye(self.used)
        self._projection[:] = 0.0
        self._projection[: self.used, : self.used] = np.diag(self.values)
