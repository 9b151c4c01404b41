"""The public surface is pinned, and importing it stays light."""

import ast
import os
import pkgutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import thalweg

PUBLIC = """
Classification Experiment FunctionObjective HomogeneousNetwork InputError LinearNetwork Model
Objective Probe Regression SharedNetwork TargetMatrix adversarial central_flow certificates
certified_step certify compare critical critical_learning_rate curvature data descend distance
dynamics explore extreme_eigenvalues flow initialisation keep_compiled layer_spectra measurement
merge network objective open optimisers probes problem proofs prove quantities report sharpness
smallest_eigenvalue solvers sweep theorems torch tube tube_along tubes
"""


def fresh(code: str, environment: Mapping[str, str] | None = None) -> str:
    """What the code prints in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.strip()


def test_the_public_names_are_these():
    names = fresh("import thalweg; print(*(n for n in dir(thalweg) if not n.startswith('_')))")
    assert sorted(names.split()) == sorted(PUBLIC.split())


def test_type_checkers_see_the_names_that_are_loaded_later_where_they_are():
    tree = ast.parse(Path(thalweg.__file__).read_text())
    seen = next(node for node in tree.body if isinstance(node, ast.If) and not node.orelse)
    places = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in seen.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    later = {name: "thalweg." + place.replace(":", ".") for name, place in thalweg._LATER.items()}
    del places["_storage"]
    assert places == {name: place for name, place in later.items() if name != "open"}


def test_every_name_is_there_and_stays_the_same():
    code = (
        "import thalweg; from thalweg import *; "
        "print([n for n in thalweg.__all__ if globals()[n] is not getattr(thalweg, n)], "
        "tube_along.__name__, Experiment().title)"
    )
    assert fresh(code) == "[] tube_along"
    with pytest.raises(AttributeError, match="has no attribute 'desend'"):
        thalweg.desend  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'desend'"):
        from thalweg import desend  # noqa: F401


HEAVY = (
    "jax jaxlib numpy scipy equinox diffrax xarray zarr pandas sklearn tomlkit matplotlib "
    "dask distributed torch flint"
)
"""What takes a tenth of a second and more to load."""

LOADED = f"import sys; print([m for m in '{HEAVY}'.split() if m in sys.modules])"


def test_importing_loads_nothing():
    others = "[m for m in ('pydantic', 'rich', 'typer', 'jaxtyping') if m in sys.modules]"
    assert fresh(f"import thalweg; {LOADED}; print({others})") == "[]\n[]"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]):
    code = (
        f"import sys; sys.argv = {['thalweg', *arguments]!r}\nfrom thalweg.cli import main\n"
        f"try:\n    main()\nfinally:\n    {LOADED}"
    )
    assert fresh(code).splitlines()[-1] == "[]"


def test_64_bits_are_on_and_can_be_left_off():
    """Whether thalweg or JAX is imported first."""
    shown = "import jax.numpy as jnp; print(jnp.zeros(1).dtype)"
    without = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    for order in ("import thalweg, jax", "import jax, thalweg"):
        assert fresh(f"{order}; {shown}", without) == "float64"
        for off in ("0", "off", "False"):
            assert fresh(f"{order}; {shown}", {**without, "JAX_ENABLE_X64": off}) == "float32"


def test_what_takes_long_to_load_is_loaded_by_those_who_need_it():
    heavy = "matplotlib dask torch xarray sklearn pydantic diffrax scipy.stats scipy.optimize"
    code = (
        "import sys, thalweg; thalweg.theorems, thalweg.tube, thalweg.critical_learning_rate; "
        f"print([m for m in '{heavy}'.split() if m in sys.modules])"
    )
    assert fresh(code) == "[]"


def public_modules() -> list[str]:
    """All modules and packages right below `thalweg` that are not private."""
    found = (name for _, name, _ in pkgutil.iter_modules(thalweg.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def defined_in(module: ModuleType) -> set[str]:
    """The names without an underscore that a module defines, or a package takes from its own."""
    tree, names = ast.parse(Path(str(module.__file__)).read_text()), set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for each in targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(module.__name__):
            names |= {alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_lists_its_public_names_and_nothing_else(name: str):
    module = import_module(f"thalweg.{name}")
    assert dir(module) == sorted(module.__all__)
    assert set(module.__all__) >= defined_in(module)
    for each in module.__all__:
        assert getattr(module, each) is not None
