"""What the other tests rely on: the first calls of every function are checked, in each test."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxtyping import Float

import typechecking
from thalweg.validated.norms import times

RIGHT, WRONG = np.ones((2, 3)), np.ones((2, 4))


def test_calls_of_the_package_are_checked():
    times(RIGHT, RIGHT)
    with pytest.raises(jaxtyping.TypeCheckError, match="times"):
        times(WRONG, WRONG)


def test_the_first_calls_of_each_test_are_checked(monkeypatch):
    def same(array: Float[np.ndarray, "_ 3"]) -> Float[np.ndarray, "_ 3"]:
        return array

    monkeypatch.setattr(typechecking, "MOST", 3)
    checked = jaxtyping.jaxtyped(same, typechecker=typechecking.first_calls)
    for _ in range(2):
        typechecking.next_test()
        with pytest.raises(jaxtyping.TypeCheckError):
            checked(WRONG)
        for _ in range(3):
            checked(RIGHT)
        checked(WRONG)


def test_a_constant_is_computed_while_a_function_is_lowered():
    """Both are compiled, and one of them in the middle of the other."""

    def lowered(_, x):
        assert jnp.sum(jnp.ones(17) * 2.5) == 42.5
        return [x]

    primitive = Primitive("computes_a_constant")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, lowered)
    assert jax.jit(lambda x: primitive.bind(x) + 1)(1.0) == 2.0
