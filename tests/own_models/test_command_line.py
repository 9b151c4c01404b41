"""`thalweg run --model FILE.py:FUNCTION`: the user's own code, run as such."""

import re

import pytest
from typer.testing import CliRunner

import thalweg as tw
from thalweg.cli.base import app

MODEL = """
import jax.numpy as jnp
import numpy as np
import thalweg as tw

def loss(params, batch):
    return jnp.mean((jnp.tanh(batch @ params["a"]) - 0.5) ** 2) / 2

def build():
    data = np.random.default_rng(0).normal(size=(9, 3))
    return tw.FunctionObjective(loss, data), {"a": np.ones(3)}

def failing():
    return {}["missing"]

def alone():
    return tw.FunctionObjective(loss, np.ones((2, 3)))

def swapped():
    return {"a": np.ones(3)}, alone()

def integers():
    return alone(), {"a": np.ones(3, int)}

number = 3
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("x = (")


def called(*arguments):
    found = CliRunner().invoke(app, ["run", *arguments])
    assert isinstance(found.exception, tw.InputError), found.output
    return str(found.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "own_model"], "must have the form FILE.py:FUNCTION, such as my_model.py:bui"),
        (["--model", "none.py:build"], "a file that can be read, got none.py: No such file"),
        (["--model", "own_model.py:nothing"], "'nothing', which is not there."),
        (["--model", "own_model.py:number"], "a function of own_model.py, got 'number', which is"),
        (["--model", "own_model.py:failing"], "must run, but, line 14: KeyError: 'missing'."),
        (["--model", "broken.py:build"], "must run, but, line 1: SyntaxError: "),
        (["--model", "own_model.py:alone"], "an objective and a start, got a FunctionObjective"),
        (["--model", "own_model.py:swapped"], "return an objective first, .*got a dict"),
        (["--model", "own_model.py:integers"], r"`start\['a'\]` must be at least one floating"),
        (["--model", "own_model.py", "--set", "network.depth=3"], "`--set` must change training"),
        (["other.toml", "--model", "own_model.py"], "FILE must be left out where there is a `--m"),
    ],
)
def test_what_cannot_run_is_told_in_one_sentence(model, arguments, message):

    assert re.search(
        message.replace("(", r"\(") if "'('" in message else message, called(*arguments)
    )


def test_a_model_of_ones_own_is_run_and_shown_again(model, tmp_path):
    settings = ["--set", "training.steps=20", "--set", "training.learning_rate=0.5"]
    arguments = ["run", "--model", "own_model.py:build", *settings, "--out", "out"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    results = tw.open(tmp_path / "out")
    assert results.sizes["record"] == 21
    assert bool(results.distance.notnull().all())
    assert (tmp_path / "out" / "report.html").exists()
    again = CliRunner().invoke(app, arguments)
    assert "holds this very run" in again.output
    (tmp_path / "own_model.py").write_text(MODEL.replace("0.5) **", "0.4) **"))
    changed = CliRunner().invoke(app, arguments)
    assert "must be a folder of this run or a new one" in str(changed.exception)


def test_the_help_says_that_the_file_is_run():
    shown = " ".join(
        CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output.split()
    )
    assert "The file is your own code and is run as such" in shown
