"""The outermost eigenvalues of a large symmetric operator, from products with vectors.

The space grows by the residuals of the approximations at its ends. From a single vector that is
Lanczos's method: all residuals are parallel, so that one product serves both ends. From several
vectors, which may be nearly eigenvectors already, it is Davidson's, where a product serves one end.

A residual proves that an eigenvalue is near, not that it is the last one. So before an end is
called converged, further products have to leave it where it is. In the Krylov space of one vector,
which always has a random part, these are its next steps, which bring out what little the vector has
of the last eigenvector. Elsewhere they follow fresh random directions: this is what starts at
eigenvectors that used to be extreme, or a repeated eigenvalue, would otherwise get past. Where what
is known are eigenvectors to the tolerance, few products say that they are still the last ones; the
next approximations inside are then improved, too, while their residuals reach beyond the ends. And
where eigenvalues crowd, the last one may lie beyond the residual of the one that was found, so an
error is ten residuals.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from thalweg.krylov.space import Product, Rows, Space, Vector, norm

_BASIS = 48  # vectors in the largest basis; each costs memory and two passes per product
_CAUTION = 10.0  # residuals per error, see above
_REACHABLE = 1000.0  # units of rounding: a smaller error is not to be had from products
_PROBES = 4  # products spent on fresh random directions before an end counts as converged
_STEADY = 3  # further products after which it does in the Krylov space of one vector
_BEHIND = 24  # products at most on approximations that may come to lie beyond an end
_STRAY = 0.3  # of a hint: how long the random vector is that is added to it


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
    hint: Vector | None = None,
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
            they let the space predict the next ones, as their combinations are in it.
        hint: where nothing is as near: a vector that has more of the ends than a random one has.
        max_products: give up after so many products, and say so; as where rounding of the products
            does not allow the tolerance.
        seed: of the random directions.
    """
    search = _Search(Space(product, size, max(_BASIS, 6 * count)), np.random.default_rng(seed))
    space = search.space
    search.begin([] if start is None else start, hint)
    single = count == 1 and start is None
    settled: Float[np.ndarray, " ends"] | None = None
    steady = np.zeros(0, int)  # for how many products each end has met the goal
    behind = 0 if single else _BEHIND
    while True:
        places = _places(space, count, ends)
        residuals = _CAUTION * np.array([norm(space.residual(int(each))) for each in places])
        reachable = _REACHABLE * space.precision
        goal = max(tolerance, reachable) * space.norm
        met, values = residuals <= goal, space.values[places]
        steady = met * (1 + (steady if steady.shape == met.shape else 0))
        unmoved = settled is not None and _unmoved(values, settled, goal)
        done = met.all() and ((steady > _STEADY).all() if single else unmoved)
        hidden = _reaching_beyond(space, count, ends, goal) if done and behind else None
        if hidden is not None:
            behind -= 1
            search.extend(hidden)
            continue
        if done or space.exhausted:
            return _pairs(space, places, ends, residuals, settled, tolerance >= reachable)
        if space.products >= max_products:
            return _pairs(space, places, ends, residuals, settled, False)
        if met.all() and not single:
            settled = values
            search.probe()
        else:
            behind = 0  # a search that had to go on has seen more than what was known
            search.extend(space.residual(int(places[np.argmax(residuals)])))


@dataclass(frozen=True)
class _Search:
    """A space that always finds a direction to grow by, for where one fails a random one is."""

    space: Space
    random: np.random.Generator

    def begin(self, known: Iterable[Vector], hint: Vector | None) -> None:
        """Take what is known, and a random vector; what is a hint makes one with it."""
        for vector in known:
            self.extend(vector)
        if hint is None or norm(hint) == 0:
            self.extend_randomly()
            return
        stray = self.random.standard_normal(self.space.size)
        self.extend(hint / norm(hint) + _STRAY * stray / norm(stray))

    def extend(self, direction: Vector) -> None:
        """Add a direction to the space; a random one where it is already inside."""
        if not self.space.extend(direction):
            self.extend_randomly()

    def extend_randomly(self) -> None:
        """Add a random direction, unless the space is everything."""
        while not (
            self.space.exhausted or self.space.extend(self.random.standard_normal(self.space.size))
        ):
            pass

    def probe(self) -> None:
        """Follow a fresh random direction and its images for a while."""
        self.extend_randomly()
        for _ in range(_PROBES - 1):
            if not self.space.extend_by_image():
                self.extend_randomly()


def _places(space: Space, count: int, ends: str) -> np.ndarray:
    """Of the outermost values: the smallest ones, then the largest ones, outermost first.

    Only where all values are known, the two ends may share some.
    """
    low = np.arange(min(count, space.used if space.exhausted else max(space.used // 2, 1)))
    high = space.used - 1 - low
    return {"smallest": low, "largest": high, "both": np.concatenate([low, high])}[ends]


def _reaching_beyond(space: Space, count: int, ends: str, goal: float) -> Vector | None:
    """Of the next approximations inside, the longest residual that leads beyond their end, if any.

    What has not come far yet from a random direction looks like this, and so does a crowd.
    """
    if space.exhausted or space.used < 2 * count + 2:
        return None
    sides = {"smallest": (0,), "largest": (1,), "both": (0, 1)}[ends]
    found: list[Vector] = []
    for side in sides:
        inside, last = ((count, count - 1), (space.used - 1 - count, space.used - count))[side]
        residual = space.residual(inside)
        if norm(residual) > max(goal, abs(float(space.values[inside] - space.values[last]))):
            found.append(residual)
    return max(found, key=norm, default=None)


def _unmoved(
    values: Float[np.ndarray, " ends"], settled: Float[np.ndarray, " before"], goal: float
) -> bool:
    return values.shape == settled.shape and bool(np.all(np.abs(values - settled) <= goal))


def _pairs(
    space: Space,
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
    eps = float(np.finfo(float).eps)  # of all but the products
    rounding = (4 * space.size * eps + _REACHABLE * (space.precision - eps)) * space.norm
    errors = np.maximum(residuals, moved) + rounding
    vectors = space.vectors(places)
    split = {"smallest": places.size, "largest": 0, "both": places.size // 2}[ends]
    return Pairs(
        values[:split], errors[:split], vectors[:split],
        values[split:], errors[split:], vectors[split:],
        space.products, converged,
    )  # fmt: skip
