"""Symmetric operators: whatever can be multiplied with vectors has eigenvalues.

A Hessian is one source of them. Others are a symmetric matrix, SciPy's `LinearOperator`, and any
function v -> A v:

    SymmetricOperator(lambda v: A @ v, size)

An operator declares what more is known of it: whether JAX can trace the product, which is then
compiled; whether it is symmetric by construction, which else is looked into by two products; and
whether the whole matrix is cheap to have.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import (
    InputError,
    as_floating,
    described,
    finite_weights,
    is_traced,
    require_count,
)
from thalweg._typing import AnyWeights
from thalweg.curvature.forms import linear_hessian
from thalweg.krylov.space import Product, norm
from thalweg.objective import AbstractHostObjective, AbstractObjective
from thalweg.objective.host import flattened
from thalweg.validated.by_hand import hessian_by_hand, is_of_linear_network

Vector = Float[Array | np.ndarray, " size"]
Square = Float[Array | np.ndarray, "size size"]


class AbstractSymmetricOperator(eqx.Module):
    """A symmetric matrix A that is known by its products with vectors of length `size`."""

    size: eqx.AbstractVar[int]

    @abstractmethod
    def __call__(self, vector: Vector) -> Vector:
        """A v."""

    def prepared(self) -> Callable[[Any], Any]:
        """The same product, for many vectors: what they share may be done once."""
        return self

    @property
    def traceable(self) -> bool:
        """Whether JAX can trace the product."""
        return False

    @property
    def surely_symmetric(self) -> bool:
        """Whether u^T A v = v^T A u by construction."""
        return False

    @property
    def cheaply_dense(self) -> bool:
        """Whether A as a matrix costs less than its products with all unit vectors in turn."""
        return False

    def dense(self) -> Square:
        """A itself; column by column, unless a subclass knows better."""
        product = products_of(self)
        columns = np.stack([product(unit) for unit in np.eye(self.size)])
        return (columns + columns.T) / 2

    def hint(self) -> Float[np.ndarray, " size"] | None:
        """A vector that may have more of the outermost eigenvectors than a random one, if known."""
        return None

    def shaped(self, vector: Vector) -> Any:
        """A vector as the thing that it stands for, such as weights; by default, itself."""
        return vector

    def not_finite(self) -> str:
        """The sentence for a product that has NaN or infinity in it."""
        return (
            "The operator's products must be finite, but that with a unit vector has NaN or "
            "infinity in it; does it overflow?"
        )


class SymmetricOperator(AbstractSymmetricOperator):
    """Any function v -> A v with a symmetric A."""

    function: Callable[[Any], Any]
    size: int = eqx.field(static=True)
    _traceable: bool = eqx.field(static=True)

    @checked
    def __init__(self, function: Callable[[Any], Any], size: int, *, traceable: bool = False):
        """Take the function and the length of v.

        Args:
            function: is given a NumPy vector and returns A v as something that NumPy understands.
            size: the length of v.
            traceable: JAX can trace the function; it is then compiled, and given JAX's vectors.
        """
        self.function, self.size = function, require_count("size", size)
        self._traceable = traceable

    @override
    def __call__(self, vector: Vector) -> Any:
        return self.function(vector)

    @property
    @override
    def traceable(self) -> bool:
        return self._traceable


class MatrixOperator(AbstractSymmetricOperator):
    """A symmetric matrix, as it is."""

    matrix: Float[np.ndarray, "size size"]

    @checked
    def __init__(self, matrix: Float[np.ndarray, "rows columns"]):
        """Take the matrix."""
        _require_square("The matrix", matrix.shape)
        self.matrix = np.asarray(as_floating("matrix", matrix))

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.matrix.shape[0]

    @override
    def __call__(self, vector: Vector) -> Vector:
        return self.matrix @ vector

    @property
    @override
    def cheaply_dense(self) -> bool:
        return True

    @override
    def dense(self) -> Square:
        return (self.matrix + self.matrix.T) / 2


class HessianOperator(AbstractSymmetricOperator):
    """The Hessian of an objective at a point; vectors are weights, laid out one after the other."""

    objective: AbstractObjective
    weights: AnyWeights

    @checked
    def __init__(self, objective: AbstractObjective, weights: AnyWeights):
        """Take what is differentiated twice, and where."""
        self.objective, self.weights = objective, finite_weights(weights)
        objective.try_out(self.weights)

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(array.size for array in jax.tree.leaves(self.weights))

    @override
    def __call__(self, vector: Vector) -> Vector:
        return ravel_pytree(self.objective.hvp(self.weights, self.shaped(vector)))[0]

    @override
    def prepared(self) -> Callable[[Any], Any]:
        if not isinstance(self.objective, AbstractHostObjective):
            return self
        product = self.objective.product_on_host(jax.tree.map(np.asarray, self.weights))
        return lambda vector: flattened(product(self.shaped(vector)))

    @property
    @override
    def traceable(self) -> bool:
        return not self.objective.on_host

    @property
    @override
    def surely_symmetric(self) -> bool:
        return True

    @property
    @override
    def cheaply_dense(self) -> bool:
        return not self.objective.on_host

    @override
    def hint(self) -> Float[np.ndarray, " size"] | None:
        """The gradient, which training leaves mostly in the directions of large curvature.

        Where JAX would have to compile it for this, which takes longer than what it saves, nothing.
        """
        if not self.objective.on_host:
            return None
        slopes = flattened(self.objective.value_and_gradient(self.weights)[1])
        return slopes if np.isfinite(slopes).all() and np.any(slopes) else None

    @override
    def dense(self) -> Square:
        if self.objective.on_host:
            return self.objective.hessian(self.weights)
        by_hand = hessian_by_hand(self.objective, self.weights)
        return _hessian(self.objective, self.weights) if by_hand is None else by_hand

    @override
    def shaped(self, vector: Vector) -> AnyWeights:
        leaves, structure = jax.tree.flatten(self.weights)
        if any(map(is_traced, (vector, *leaves))):
            point, unravel = ravel_pytree(self.weights)
            return unravel(jnp.asarray(vector, point.dtype))
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = np.split(
            np.asarray(vector, np.result_type(*(leaf.dtype for leaf in leaves))), ends[:-1]
        )
        shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped)

    @override
    def not_finite(self) -> str:
        return (
            "The Hessian must be finite, but it overflows at these `weights`; did the run that "
            "they come from diverge?"
        )


@eqx.filter_jit
def _hessian(objective: AbstractObjective, weights: AnyWeights) -> Float[Array, "size size"]:
    """The dense Hessian, in closed form where there is one."""
    if is_of_linear_network(objective):
        return linear_hessian(objective, weights)
    return objective.hessian(weights)


# --- from what is given ---------------------------------------------------------------------------


@runtime_checkable
class LinearOperator(Protocol):
    """What SciPy's `LinearOperator` is, and what others make like it: a shape, and products."""

    shape: tuple[int, ...]

    def matvec(self, x: Any) -> Any:
        """A x."""
        ...


Operator: TypeAlias = (
    AbstractObjective
    | AbstractSymmetricOperator
    | LinearOperator
    | Float[np.ndarray, "rows columns"]
)
"""What has eigenvalues: an objective, at some weights, or an operator by itself."""


def as_operator(given: Operator, weights: AnyWeights | None) -> AbstractSymmetricOperator:
    """The Hessian of an objective at the weights, or an operator that needs none."""
    if isinstance(given, AbstractObjective):
        if weights is None:
            raise InputError("`weights` must say at which point the objective has its Hessian.")
        return HessianOperator(given, weights)
    if weights is not None:
        raise InputError(
            "`weights` must be left out where an operator is given by itself, got "
            f"{described(weights)}; a Hessian is given as an objective and its weights."
        )
    if isinstance(given, LinearOperator):
        _require_square("The LinearOperator", given.shape)
        return SymmetricOperator(given.matvec, given.shape[0])
    return given if isinstance(given, AbstractSymmetricOperator) else MatrixOperator(given)


def _require_square(what: str, shape: tuple[int, ...]) -> None:
    if shape[0] != shape[1] or shape[0] == 0:
        raise InputError(
            f"{what} must be symmetric, hence square and not empty, got shape {shape}."
        )


# --- products -------------------------------------------------------------------------------------


def products_of(operator: AbstractSymmetricOperator) -> Product:
    """The function v -> A v for NumPy's vectors, which looks at what it returns."""
    multiply = partial(_compiled, operator) if operator.traceable else operator.prepared()
    size = operator.size

    def product(vector: Float[np.ndarray, " size"]) -> Float[np.ndarray, " size"]:
        image = np.asarray(multiply(vector))
        if image.shape != (size,) or image.dtype.kind not in "fiu":
            raise InputError(
                f"The operator must turn a vector of {size} real numbers into another, got "
                f"{described(image)}."
            )
        return finite(operator, image if image.dtype.kind == "f" else image.astype(float))

    return product


@eqx.filter_jit
def _compiled(operator: AbstractSymmetricOperator, vector: Vector) -> Any:
    return operator(vector)


def finite(operator: AbstractSymmetricOperator, found: Any) -> Float[np.ndarray, "..."]:
    """What was found of an operator as a NumPy array, in which all is finite."""
    array = np.asarray(found)
    if not np.isfinite(array).all():
        raise InputError(operator.not_finite())
    return array


def require_symmetric(operator: AbstractSymmetricOperator) -> int:
    """Refuse an operator with u^T A v unlike v^T A u for two random vectors; the products taken.

    Rounding leaves a difference of some units of it; a part as large as its root is something else.
    """
    if operator.surely_symmetric:
        return 0
    product, random = products_of(operator), np.random.default_rng(0)
    u, v = random.standard_normal((2, operator.size)) / np.sqrt(operator.size)
    left, right = product(u), product(v)
    whole = norm(u) * norm(right) + norm(v) * norm(left)
    off = abs(float(u @ right) - float(v @ left))
    single = left.dtype.kind == "f" and left.dtype.itemsize < np.dtype(float).itemsize
    if off > np.sqrt(np.finfo(left.dtype if single else float).eps) * whole:
        raise InputError(
            "The operator must be symmetric, but u^T A v and v^T A u of two random vectors differ "
            f"by {off / whole:.1e} of their size; is (A + A^T) / 2 meant?"
        )
    return 2
