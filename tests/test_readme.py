"""The README's example runs as it stands, and says what is true."""

import importlib.util
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import thalweg as tw
from thalweg.studies import STUDIES

README = Path(__file__).parents[1] / "README.md"


def examples(page):
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)


def test_the_example_runs(capsys):
    code = examples(README)[0]
    assert len(code.strip().splitlines()) <= 16
    names = {}
    exec(compile(code, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "distance to the flow" in printed
    # Below the edge descent ends near the flow, in a minimiser that it can settle in.
    assert names["gap"][-1] < 0.02
    assert names["flow"].error.max() < 1e-6
    assert names["top"].value < 2 / 0.02


def test_models_of_ones_own(tmp_path, monkeypatch):
    """The lines for PyTorch are those of its page, which a test of that page runs."""
    _, torch, function = examples(README)
    assert torch == examples(README.parent / "docs" / "pytorch.md")[0]
    monkeypatch.chdir(tmp_path)

    def loss(params, batch):
        x, y = batch
        return jnp.mean((x @ params["w"] - y) ** 2)

    x = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    names = {"tw": tw, "loss": loss, "x": x, "y": x[:, 0], "params": {"w": np.zeros(3)}}
    exec(compile(function, str(README), "exec"), names)
    assert names["run"].loss[-1] < names["run"].loss[0]
    assert (tmp_path / "report" / "report.html").exists()


def test_every_linked_file_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_the_table_of_studies_is_current():
    place = README.parent / "docs" / "write_studies.py"
    spec = importlib.util.spec_from_file_location("write_studies", place)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text("utf-8") == script.written(), "run `make docs`"
    assert all(f"`{name}" in script.table() for name in STUDIES)
