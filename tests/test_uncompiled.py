"""What is traced by JAX and evaluated in NumPy is what JAX would have computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import _uncompiled
from thalweg._uncompiled import NoCounterpartError, evaluated
from thalweg.objective.points import at_points

POINTS = 7
RANDOM = np.random.default_rng(0)
SQUARES = RANDOM.normal(size=(POINTS, 4, 4))
TALL = RANDOM.normal(size=(POINTS, 5, 3))
VECTORS = RANDOM.normal(size=(POINTS, 6))

# Together they meet every primitive of the tables; a test holds that.
FUNCTIONS = {
    "arithmetic": (
        lambda c, x: (c * x + 1 - x / c, -x, x**2, x**3, x**-2, abs(x) ** c, jnp.square(x)),
        VECTORS,
    ),
    "comparisons": (
        lambda c, x: jnp.where((x < c) & (x <= 1) | ~(x > 0) | (x >= 2) | (x == c), x, jnp.sign(x)),
        VECTORS,
    ),
    "functions": (
        lambda c, x: (
            jnp.exp(x), jnp.log(abs(x)), jnp.log1p(abs(x)), jnp.expm1(x), jnp.tanh(x),
            jnp.sqrt(abs(x)), jax.lax.rsqrt(abs(x)), jnp.clip(x, -c, c), jnp.isfinite(x / c),
            jax.lax.clamp(-0.5, x, 0.5), x != c, jax.lax.stop_gradient(x), jnp.copy(x),
        ),
        VECTORS,
    ),
    "reductions": (
        lambda c, x: (
            x.sum(), x.sum(axis=0), x.prod(axis=1), x.max(), x.min(axis=1), (x > 0).all(axis=0),
            (x > c).any(), jnp.maximum(x, c), jnp.minimum(x, c), jnp.sort(x, axis=0),
        ),
        TALL,
    ),
    "shapes": (
        lambda c, x: (
            x.T, x.reshape(-1), x[1:, ::2], x[0], x[-1], x[None], x[:, :1].squeeze(1), x[::-1],
            jnp.pad(x, ((1, 2), (0, 1)), constant_values=3.0), jnp.concatenate([x, x * c]),
            jnp.stack([x, -x], axis=1), jnp.split(x, [1, 3]), jnp.broadcast_to(x, (2, 5, 3)),
            jnp.arange(4.0) + x[0, 0], x.astype(int),
            jnp.take(x, np.array([2, 0, 2, 1]), axis=1), jnp.take(x, np.array([4, 0]), axis=0),
        ),
        TALL,
    ),
    "products": (
        lambda c, x: (
            x @ x.T, x.T @ x, jnp.vdot(x, x), jnp.einsum("ij,ik->ijk", x, x), x @ x[0],
            jnp.einsum("ij,kj->ki", x, x),
        ),
        TALL,
    ),
    "decompositions": (
        lambda c, x: (
            jnp.linalg.svd(x, compute_uv=False), jnp.linalg.eigvalsh(x + x.T),
            *map(jnp.abs, jnp.linalg.svd(x, full_matrices=False)),  # whose signs are free
            jnp.linalg.norm(x), jnp.linalg.norm(x, axis=0),
        ),
        SQUARES,
    ),
    "called": (
        lambda c, x: (
            jax.nn.relu(x) + jax.jit(lambda y: c * y)(x), jax.grad(lambda y: (y * y).sum())(x),
        ),
        VECTORS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_what_jax_computes(name):
    function, points = FUNCTIONS[name]
    found = evaluated(function, 0.7, points)
    expected = jax.vmap(lambda point: function(0.7, point))(points)
    for mine, own in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert mine.dtype == own.dtype or mine.dtype.kind == own.dtype.kind
        # Both are right to some units in the last place of the largest number.
        np.testing.assert_allclose(mine, own, rtol=1e-12, atol=1e-12)


def test_every_primitive_is_met():
    def primitives(jaxpr):
        for each in jaxpr.eqns:
            yield each.primitive.name
            for inner in each.params.values():
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from primitives(getattr(inner, "jaxpr", inner))

    met = set()
    for function, points in FUNCTIONS.values():
        mapped = jax.vmap(lambda point, f=function: f(jnp.float64(0.7), point))
        met |= set(primitives(jax.make_jaxpr(mapped)(points).jaxpr))
    tables = (_uncompiled._DIRECT, _uncompiled._WITH_SETTINGS, _uncompiled._SEVERAL)
    assert {name for table in tables for name in table} - met == set()


def test_many_points_go_in_parts_and_not_finite_ones_stay_alone():
    points = RANDOM.normal(size=(300, 3, 3))
    points[17, 0, 0], points[200, 1, 1] = np.nan, np.inf
    found = evaluated(lambda c, x: jnp.linalg.svd(x, compute_uv=False)[0], None, points)
    broken = np.isin(np.arange(300), (17, 200))
    assert np.isnan(found[broken]).all()
    expected = np.linalg.svd(points[~broken], compute_uv=False)[:, 0]
    np.testing.assert_allclose(found[~broken], expected, rtol=1e-12)


def test_what_numpy_cannot_do_is_left_to_jax(monkeypatch):
    def cumulated(objective, point):
        return jax.lax.scan(lambda total, x: (total + x, total), 0.0, point[0].ravel())[0]

    with pytest.raises(NoCounterpartError):
        evaluated(cumulated, None, (np.ones((2, 3)),))
    objective = tw.Objective(tw.LinearNetwork([3, 1]), tw.TargetMatrix(np.ones((1, 3))))
    points = (RANDOM.normal(size=(4, 1, 3)),)
    np.testing.assert_allclose(at_points(cumulated, objective, points), points[0].sum((1, 2)))


def _size(objective, point, factor):
    return factor * sum(jnp.sum(layer**2) for layer in point)


def test_large_networks_are_compiled_and_say_the_same(caplog):
    for width, compiled in ((4, False), (60, True)):
        network = tw.LinearNetwork([width, width, 1])
        objective = tw.Objective(network, tw.TargetMatrix(np.ones((1, width))))
        points = tuple(RANDOM.normal(size=(3, *shape)) for shape in network.shapes)
        caplog.clear()
        with jax.log_compiles(), caplog.at_level("WARNING"):
            found = at_points(_size, objective, points, 2.0)
        assert any("_compiled" in each for each in caplog.messages) == compiled
        expected = 2 * sum((layer**2).sum((1, 2)) for layer in points)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
