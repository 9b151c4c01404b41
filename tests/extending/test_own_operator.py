"""An operator of one's own: whatever can be multiplied with vectors has its eigenvalues found."""

import equinox as eqx
import numpy as np
import pytest
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import thalweg as tw
from thalweg.curvature import AbstractSymmetricOperator, SymmetricOperator, spectral_density

SIZE = 2000


def second_difference(v):
    """The negative second difference with zeros beyond the ends: 2 v_i - v_{i-1} - v_{i+1}."""
    padded = np.pad(v, 1)
    return 2 * v - padded[:-2] - padded[2:]


LARGEST = 2 - 2 * np.cos(SIZE * np.pi / (SIZE + 1))  # in closed form


def test_a_function_is_an_operator():
    top = tw.sharpness(SymmetricOperator(second_difference, SIZE), tolerance=1e-6)
    assert abs(top.value - LARGEST) <= top.error <= 1e-5  # ten times the tolerance's part of 4
    assert top.vector.shape == (SIZE,)


@pytest.mark.parametrize(
    "operator",
    [
        LinearOperator((SIZE, SIZE), matvec=second_difference, dtype=float),
        aslinearoperator(diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(SIZE, SIZE))),
    ],
)
def test_so_is_whatever_scipy_calls_one(operator):
    ends = tw.extreme_eigenvalues(operator, tolerance=1e-4)
    assert abs(ends.largest[0].value - LARGEST) <= ends.largest[0].error
    assert abs(ends.smallest[0].value - (4 - LARGEST)) <= ends.smallest[0].error
    density = spectral_density(operator, steps=20)
    mean, spread = density.mean_of(density.nodes)
    assert abs(mean - 2) <= 5 * spread  # the trace over the size; five standard errors, fixed seed


class LowRank(AbstractSymmetricOperator):
    """U U^T - shift, which declares what it knows: it is symmetric, and cheap as a matrix."""

    factor: np.ndarray
    shift: float
    size: int = eqx.field(static=True)

    def __call__(self, vector):
        return self.factor @ (self.factor.T @ vector) - self.shift * vector

    @property
    def surely_symmetric(self):
        return True

    @property
    def cheaply_dense(self):
        return True

    def dense(self):
        return self.factor @ self.factor.T - self.shift * np.eye(self.size)


def test_a_class_says_what_it_knows():
    factor = np.random.default_rng(0).normal(size=(300, 5))
    operator = LowRank(factor, 0.5, size=300)
    largest = np.linalg.norm(factor, 2) ** 2 - 0.5
    for method in ("auto", "davidson"):
        ends = tw.extreme_eigenvalues(operator, method=method)
        assert abs(ends.largest[0].value - largest) <= ends.largest[0].error
        assert abs(ends.smallest[0].value + 0.5) <= ends.smallest[0].error
    assert tw.sharpness(operator).method == "dense"  # "auto", for 300 rows that come cheap


def test_what_is_not_symmetric_is_refused():
    with pytest.raises(tw.InputError, match="must be symmetric, but u\\^T A v and v\\^T A u"):
        tw.sharpness(SymmetricOperator(lambda v: np.roll(v, 1), SIZE))
