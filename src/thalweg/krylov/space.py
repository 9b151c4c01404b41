"""A space that grows by one direction at a time, and the projection of an operator onto it.

With the orthonormal basis V (rows) the eigenpairs (theta, x) of the projection V A V^T approximate
those of A, and for each there is an eigenvalue of A within

    |A x - theta x|,

which is computed, not estimated. A space that grows by its last image is the Krylov space of its
first direction (Lanczos's method with full re-orthogonalisation); one that grows by residuals, from
several directions, is Davidson's without a preconditioner. When the room is used up, the best
approximations at both ends stay and the rest is dropped (thick restart [wu2000]).

[wu2000] K. Wu, H. Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems",
    SIAM J. Matrix Anal. Appl. 22, 2000.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " size"]
Rows = Float[np.ndarray, "rows size"]
Product = Callable[[Vector], Vector]

_INSIDE = 1e-8  # of a direction: so little outside of the space is not worth a product
_NULL = 1e-12  # of the largest entry of the projection: so short an image is rounding


class Space:
    """An orthonormal basis, its image under the operator, and the projection's eigenpairs.

    Attributes:
        size: the length of the vectors.
        products: how many were taken.
        used: how many basis vectors there are.
        precision: the unit of rounding of the products, which may come in single precision.
    """

    def __init__(self, product: Product, size: int, room: int):
        """Begin with nothing, and with room for so many basis vectors."""
        self.size, self.products, self.used = size, 0, 0
        self._product, self._room = product, min(room, size)
        self._basis = np.empty((self._room, size))
        self._images = np.empty((self._room, size))
        self._projection = np.zeros((self._room, self._room))
        self.precision = float(np.finfo(float).eps)
        self._largest = 0.0  # entry of the projection so far
        self._pairs: tuple[np.ndarray, np.ndarray] | None = None

    # --- growing -----------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Whether the space is everything, and its eigenpairs are those of the operator."""
        return self.used == self.size

    def extend(self, direction: Vector) -> bool:
        """Add a direction; False, and nothing happens, where it lies inside but for rounding."""
        if self.exhausted:
            return False
        if self.used == self._room:
            self._restart()
        new = self._orthonormal(direction)
        if new is None:
            return False
        image = np.asarray(self._product(new))
        self.products += 1
        if image.dtype.kind == "f":
            self.precision = max(self.precision, float(np.finfo(image.dtype).eps))
        self._basis[self.used], self._images[self.used] = new, image
        self.used += 1
        column = self._basis[: self.used] @ image
        self._projection[: self.used, self.used - 1] = column
        self._projection[self.used - 1, : self.used] = column
        self._largest = max(self._largest, float(np.max(np.abs(column))))
        self._pairs = None
        return True

    def extend_by_image(self) -> bool:
        """Add what the operator makes of the last direction: one step of Lanczos's method."""
        image = self._images[self.used - 1]
        return norm(image) > _NULL * self._largest and self.extend(image)

    # --- eigenpairs --------------------------------------------------------------------------

    @property
    def values(self) -> Float[np.ndarray, " used"]:
        """The projection's eigenvalues, ascending."""
        return self._decomposed()[0]

    @property
    def coordinates(self) -> Float[np.ndarray, "used used"]:
        """Its unit eigenvectors in the basis, as columns."""
        return self._decomposed()[1]

    @property
    def norm(self) -> float:
        """The largest modulus seen, which approaches the spectral norm from below."""
        return max(float(np.max(np.abs(self.values))), float(np.finfo(float).tiny))

    def vectors(self, places: np.ndarray) -> Rows:
        """The approximate eigenvectors at these places, as rows."""
        return self.coordinates[:, places].T @ self._basis[: self.used]

    def residual(self, place: int) -> Vector:
        """A x - theta x."""
        coordinates = self.coordinates[:, place]
        return coordinates @ self._images[: self.used] - self.values[place] * (
            coordinates @ self._basis[: self.used]
        )

    def _decomposed(self) -> tuple[np.ndarray, np.ndarray]:
        if self._pairs is None:
            values, vectors = np.linalg.eigh(self._projection[: self.used, : self.used])
            self._pairs = values, vectors
        return self._pairs

    # --- the basis ---------------------------------------------------------------------------

    def _orthonormal(self, direction: Vector) -> Vector | None:
        """The part outside of the space, as a unit vector; None where nothing but rounding is."""
        vector = direction / max(norm(direction), float(np.finfo(float).tiny))
        for _ in range(2):  # twice is enough
            active = self._basis[: self.used]
            vector = vector - (active @ vector) @ active
            rest = norm(vector)
            if rest < _INSIDE:
                return None
            vector = vector / rest
        active = self._basis[: self.used]
        vector = vector - (active @ vector) @ active  # what scaling up a small rest brought back
        return vector / norm(vector)

    def _restart(self) -> None:
        """Keep a third of the pairs at each end."""
        third = self._room // 3
        places = np.concatenate([np.arange(third), np.arange(self.used - third, self.used)])
        rotation = self.coordinates[:, places].T
        self._basis[: places.size] = rotation @ self._basis[: self.used]
        self._images[: places.size] = rotation @ self._images[: self.used]
        kept = self.values[places]
        self.used = places.size
        self._projection[:] = 0.0
        self._projection[: self.used, : self.used] = np.diag(kept)
        self._pairs = kept, np.eye(self.used)


def norm(vector: Vector) -> float:
    """The Euclidean norm, where squares would overflow or vanish, too."""
    with np.errstate(over="ignore", under="ignore"):
        plain = float(np.linalg.norm(vector))
    if 1e-140 < plain < 1e140:  # squares are between 1e-280 and 1e280
        return plain
    largest = float(np.max(np.abs(vector), initial=0.0))
    return largest * float(np.linalg.norm(vector / largest)) if 0 < largest < np.inf else largest
