"""The command: what it prints, what it refuses, and how it ends."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from typer.testing import CliRunner

import thalweg as tw
from thalweg import InputError, experiment
from thalweg.cli import app
from thalweg.cli.base import read_experiment

SMALL = {
    "network": {"depth": 2, "width": 2},
    "start": {"scale": 0.45},
    "training": {"learning_rate": [0.05, 0.1], "time": 2.0},
}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["missing.toml"], "a file that can be read, got missing.toml"),
        (["--port", "99999"], "a number from 0 to 65535, got 99999"),
        (["--port", "-1"], "a number from 0 to 65535, got -1"),
        (["--set", "network.depth=200"], "at most 64 for `network.depth`, got 200"),
        (["--set", "training.learning_rate=[1e-6]"], "at most 20000 steps"),
        (["--set", "data.features=2000"], "at most 1000 for `data.features`, got 2000"),
        (["--set", "data.samples=100000000"], "at most 1666666 for `data.samples`"),
        (
            ["--set", "training.learning_rate=[0.1,0.2,0.3,0.4,0.5]"],
            "at most 4 values of `training.learning_rate`, got 5",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(words, sentence):
    found = CliRunner().invoke(app, ["explore", "--no-open", *words])
    assert isinstance(found.exception, InputError)
    assert sentence in str(found.exception)


def test_a_port_that_is_taken_is_refused_in_a_sentence():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        found = CliRunner().invoke(app, ["explore", "--no-open", "--port", str(port)])
    assert isinstance(found.exception, InputError)
    assert f"free on this machine, got {port}" in str(found.exception)


def test_an_interrupt_ends_it_without_a_trace_while_a_page_waits():
    command = [sys.executable, "-m", "thalweg", "explore", "--no-open", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        asked = {"tab": "a", "number": 1, "setting": {"network": {"depth": 40, "width": 10}}}
        request = urllib.request.Request(
            f"{address}api/compute", json.dumps(asked).encode(),
            {"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.read(8)  # the first results are there, the diagram is not
            server.send_signal(signal.SIGINT)
            answer.read()
        _, said = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "Traceback" not in said, said


@pytest.mark.parametrize("seconds", [0.0, 0.7, 1.4])
def test_an_interrupt_ends_it_while_it_warms_up(seconds):
    """Code that is being compiled then cannot be interrupted."""
    command = [sys.executable, "-m", "thalweg", "explore", "--no-open", "--port", "0"]
    environment = os.environ | {"THALWEG_COMPILED": "off"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        time.sleep(seconds)
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
    assert server.returncode in (0, 130), said  # the latter before it serves
    assert "Traceback" not in said
    assert "terminate" not in said


def test_the_exports_are_the_setting(page):
    def export(form):
        answer = page.post(f"api/export/{form}", {"setting": SMALL})
        assert answer.status == 200
        return answer.body.decode()

    wanted = experiment.from_values(SMALL)
    assert experiment.from_toml(export("toml")) == wanted
    name, command, *changes = shlex.split(export("command"))
    assert (name, command) == ("thalweg", "run")
    assert read_experiment(None, [each for each in changes if each != "--set"]) == wanted


def test_the_exported_program_finds_what_is_shown(page, capsys):
    text = page.post("api/export/python", {"setting": SMALL}).body.decode()
    exec(compile(text, "explored.py", "exec"), {})
    said = capsys.readouterr().out
    shown = page.compute(SMALL, "descent", "sharpness", "flow")
    for run, rate in enumerate(SMALL["training"]["learning_rate"]):
        found = re.search(rf"learning rate {rate}: loss (\S+), sharpness (\S+), .*flow (\S+)", said)
        assert found
        loss, sharpness, distance = (float(each) for each in found.groups())
        last = np.flatnonzero(np.isfinite(shown["descent"]["loss"][run]))[-1]
        assert loss == float(f"{shown['descent']['loss'][run][last]:.4g}")
        assert sharpness == float(f"{shown['sharpness']['sharpness'][run][last]:.4g}")
        # Of two methods at the setting's tolerances, printed with three digits.
        assert distance == pytest.approx(np.nanmax(shown["flow"]["distance"][run]), rel=6e-3)


def test_an_objective_of_ones_own_is_explored_from_python(another):
    import jax.numpy as jnp

    objective = tw.FunctionObjective(lambda w: jnp.sum((w["a"] * w["b"] - 1.0) ** 2))
    weights = {"a": jnp.array(2.0), "b": jnp.array(0.1)}
    with tw.explore(objective, weights, 0.1, 4.0, wait=False, open_page=False) as explorer:
        shown = another()
        shown.page.goto(explorer.address)
        shown.settle().complete()
        run = tw.descend(objective, weights, learning_rate=0.1, steps=40)
        np.testing.assert_allclose(shown.row("descent", "loss", 0), run.loss, rtol=1e-12)
        assert shown.page.locator("#view-distance canvas").is_visible()
        assert shown.page.locator("#view-layers h3").inner_text() == "Norms of layers"
        for absent in ("#view-phases", "#stories"):
            assert not shown.page.locator(absent).is_visible()
        for empty in ("#view-product", "#view-balance"):
            assert shown.page.locator(empty).is_hidden()
        shown.page.locator("#field-training-learning_rate").press("ArrowRight")
        shown.settle()
        assert shown.field("training.learning_rate")[0] > 0.1
        assert shown.complaints == []
        shown.page.close()
