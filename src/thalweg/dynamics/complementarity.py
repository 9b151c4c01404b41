"""The semidefinite complementarity problem of a central flow, for a few unstable directions.

Given a symmetric alpha and a linear beta on symmetric k x k matrices with <X, beta[X]> > 0, the X
with

    X >= 0,    W = alpha + beta[X] >= 0,    <X, W> = 0

is the minimiser of <alpha, X> + 1/2 <X, beta[X]> over X >= 0. It is found by Newton's method on the
path of the barrier, alpha + beta[X] = mu X^-1, with mu going down to the rounding of alpha: at each
of its points <X, W> = k mu, so that the last mu says how far the solution is from the optimum.

Symmetric matrices are vectors of length k (k + 1) / 2 here, with entries off the diagonal times
sqrt(2), so that inner products stay what they are and nothing depends on the basis.
"""

import numpy as np
from jaxtyping import Float

Matrix = Float[np.ndarray, "k k"]
Operator = Float[np.ndarray, "k k k k"]

_SHRINK = 0.15  # of mu, from one point of the path to the next
_LAST = 1e-14  # of mu, in units of |alpha| |X|
_NEWTON = 500  # steps at most at one point of the path; some three are usual
_BACK = 0.9  # of the way to the boundary


def least_nonnegative(alpha: Matrix, beta: Operator) -> Matrix:
    """The X of the complementarity problem.

    Args:
        alpha: the drift of the eigenvalues' matrix where X = 0, with the other sign.
        beta: beta[X]_ij = sum_kl beta_ijkl X_kl, positive definite on symmetric matrices.
    """
    if alpha.shape == (1, 1):
        with np.errstate(divide="ignore", invalid="ignore"):  # no X where beta is zero
            return np.maximum(-alpha / beta[0, 0], 0.0)
    basis = symmetric_basis(alpha.shape[0])
    size = float(np.linalg.norm(alpha))
    if size == 0 or np.linalg.eigvalsh(alpha)[0] >= 0:
        return np.zeros_like(alpha)
    flat = np.einsum("aij,ijkl,bkl->ab", basis, beta, basis)
    flat = (flat + flat.T) / 2
    scale = size / float(np.linalg.norm(flat, 2))  # of X
    x = _path(np.einsum("aij,ij->a", basis, alpha) / size, flat * scale / size, basis)
    return scale * _nearest_on_its_face(x, alpha / size, flat * scale / size, basis)


def _path(
    alpha: Float[np.ndarray, " n"],
    beta: Float[np.ndarray, "n n"],
    basis: Float[np.ndarray, "n k k"],
) -> Matrix:
    """The barrier's path to its end, in units in which alpha and beta are of order 1.

    With X = R R^T a step is R D R^T, and (R^T beta[R D R^T] R) + mu D = mu I - R^T W R: in these
    coordinates the system stays well conditioned as X approaches the boundary.
    """
    identity = np.eye(basis.shape[1])
    root, mu = identity, 1.0
    while mu > _LAST * max(1.0, float(np.sum(root**2))):  # that is tr X
        for _ in range(_NEWTON):
            w = _matrix(alpha + beta @ _flat(root @ root.T, basis), basis)
            lift = np.einsum("aij,ik,bkl,jl->ab", basis, root, basis, root)
            target = _flat(mu * identity - root.T @ w @ root, basis)
            stretched, turned = np.linalg.eigh(lift.T @ beta @ lift)
            step = turned @ (turned.T @ target / (np.maximum(stretched, 0.0) + mu))
            values, vectors = np.linalg.eigh(_matrix(step, basis))
            share = min(1.0, _BACK / max(-values[0], 1e-300))
            root = root @ (vectors * np.sqrt(1 + share * values))
            if np.linalg.norm(values) < 0.1:
                break
        mu *= _SHRINK
    return root @ root.T


def _nearest_on_its_face(
    x: Matrix, alpha: Matrix, beta: Float[np.ndarray, "n n"], basis: Float[np.ndarray, "n k k"]
) -> Matrix:
    """With the directions that the path sends to zero at zero, the others as they must be then.

    On the face of matrices V Y V^T the minimiser solves a linear system. It is taken where it is
    positive semidefinite and leaves W so, too; else X stays as the path left it.
    """
    values, vectors = np.linalg.eigh(x)
    gradient = alpha + _matrix(beta @ _flat(x, basis), basis)
    duals = np.einsum("ia,ij,ja->a", vectors, gradient, vectors)
    inside = vectors[:, values > np.abs(duals)]
    if inside.shape[1] == 0:
        return np.zeros_like(x)
    small = symmetric_basis(inside.shape[1])
    lift = np.einsum("aij,bkl,ik,jl->ab", basis, small, inside, inside)
    y = np.linalg.lstsq(lift.T @ beta @ lift, -lift.T @ _flat(alpha, basis), rcond=1e-13)[0]
    found = _matrix(lift @ y, basis)
    w = alpha + _matrix(beta @ _flat(found, basis), basis)
    least = min(np.linalg.eigvalsh(found)[0], np.linalg.eigvalsh(w)[0])
    return found if least > -1e-9 else x


def symmetric_basis(k: int) -> Float[np.ndarray, "n k k"]:
    """An orthonormal basis of the symmetric k x k matrices."""
    found = []
    for i in range(k):
        for j in range(i, k):
            unit = np.zeros((k, k))
            unit[i, j] = unit[j, i] = 1.0 if i == j else np.sqrt(0.5)
            found.append(unit)
    return np.stack(found)


def _flat(matrix: Matrix, basis: Float[np.ndarray, "n k k"]) -> Float[np.ndarray, " n"]:
    return np.einsum("aij,ij->a", basis, matrix)


def _matrix(flat: Float[np.ndarray, " n"], basis: Float[np.ndarray, "n k k"]) -> Matrix:
    return np.einsum("a,aij->ij", flat, basis)
