"""The public surface is pinned, and importing it stays light."""

import os
import subprocess
import sys

PUBLIC = """
Classification Experiment HomogeneousNetwork InputError LinearNetwork Model Objective Regression
SharedNetwork TargetMatrix adversarial certified_step certify critical critical_learning_rate
curvature data descend distance dynamics extreme_eigenvalues flow initialisation measurement merge
network objective open problem prove sharpness smallest_eigenvalue sweep theorems tube tube_along
tubes
"""


def fresh(code: str, **environment: str) -> str:
    """What the code prints in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, **environment},
    ).stdout.strip()  # fmt: skip


def test_the_public_names_are_these():
    names = fresh("import thalweg; print(*(n for n in dir(thalweg) if not n.startswith('_')))")
    assert sorted(names.split()) == sorted(PUBLIC.split())


def test_names_that_are_loaded_later_are_there():
    code = (
        "import thalweg as tw; print(callable(tw.sweep), callable(tw.open), tw.Experiment().title)"
    )
    assert fresh(code) == "True True"


def test_importing_loads_no_drawing_no_cluster_and_no_torch():
    heavy = "matplotlib dask torch xarray sklearn pydantic"
    code = f"import sys, thalweg; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert fresh(code) == "[]"


def test_64_bits_are_on_and_can_be_left_off():
    code = "import thalweg, jax.numpy as jnp; print(jnp.zeros(1).dtype)"
    assert fresh(code) == "float64"
    assert fresh(code, JAX_ENABLE_X64="0") == "float32"
