"""The set-up tells uv where pip looks for packages, and falls back on pip."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "install.py"


@pytest.fixture
def install():
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_uv_is_told_what_pip_is_told_and_the_environment_counts_most(install):
    listed = """
:env:.find-links='/wheels /more'
global.extra-index-url='\\nfile:///one\\nfile:///two'
global.find-links='/old'
global.index-url='file:///all'
global.progress-bar='off'
install.index-url='file:///ours'
"""
    assert install.settings(listed) == {
        "UV_INDEX_URL": "file:///ours",
        "UV_EXTRA_INDEX_URL": "file:///one file:///two",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert install.settings("") == {}


@pytest.mark.parametrize("broken", ["uv cannot be had", "uv fails"])
def test_where_uv_does_not_manage_pip_installs(install, monkeypatch, capsys, broken: str):
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        fails = install.UV in command if broken == "uv cannot be had" else command[0] == "/bin/uv"
        return SimpleNamespace(returncode=3 if fails else 0, stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    there = None if broken == "uv cannot be had" else "/bin/uv"
    monkeypatch.setattr(install.shutil, "which", lambda name: there)
    with pytest.raises(SystemExit) as end:
        install.main()
    assert end.value.code == 0
    assert asked[-1][1:] == install.pip("install", "--quiet", "--editable", ".[dev]")[1:]
    assert "pip takes" in capsys.readouterr().err


def test_where_uv_manages_pip_installs_nothing(install, monkeypatch):
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(returncode=0, stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(install.shutil, "which", lambda name: "/bin/uv")
    monkeypatch.setattr(install, "compile_kernels", lambda: asked.append(["kernels"]))
    install.main()
    python = install.sys.executable
    assert [command[0] for command in asked[:2]] == [python, "/bin/uv"]
    assert {command[0] for command in asked[2:]} == {python, "kernels"}  # side by side
    assert asked[0][-2:] == ["config", "list"]


def test_what_is_imported_is_what_commands_use(install):
    program = f"import sys, {', '.join(install.USED)}; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    loaded = {name.rpartition(".")[2] for name in names.stdout.split()}
    assert {"running", "performance", "page", "plan", "pyplot", "backend_agg"} <= loaded


def test_bytecode_of_what_is_imported_is_written_whatever_python_is_told(
    install, monkeypatch, tmp_path
):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.setattr(install, "USED", ("json", "thalweg._version"))
    install.write_bytecode()
    written = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert {"decoder", "_version"} <= written


def test_kernels_of_the_set_up_are_those_that_descents_and_spectra_find(
    install, monkeypatch, tmp_path
):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    install.compile_kernels()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert {path.name.partition("-")[0] for path in kept} == {
        "descent._advance",
        "spectrum._ends_at",
    }
    assert len(kept) == 3  # of descents, with few lanes and with many
    program = """
import numpy as np, thalweg as tw
from thalweg.dynamics import native
objective = tw.Objective(tw.LinearNetwork([3, 2, 1]), tw.Regression(np.eye(3), np.ones(3)))
starts = tuple(np.ones((6, *shape)) for shape in objective.network.shapes)
for native._MUCH in (0.0, np.inf):
    run = tw.descend(objective, starts, learning_rate=0.1, steps=2)
tw.curvature.spectrum_along(objective, run)
"""
    subprocess.run([install.sys.executable, "-c", program], check=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == kept
