"""The example in JAX runs, on fewer images and for two steps; oracle: its loss in NumPy."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import thalweg as tw

FILE = Path(__file__).parents[2] / "examples" / "tanh_mlp_jax.py"


def test_the_tanh_network_in_jax(tmp_path):
    spec = importlib.util.spec_from_file_location("tanh_mlp_jax", FILE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    images, targets = (array[:40] for array in example.data())
    params = example.start()
    hidden = images
    for layer in params[:-1]:
        hidden = np.tanh(hidden @ layer["matrix"] + layer["bias"])
    outputs = hidden @ params[-1]["matrix"] + params[-1]["bias"]
    objective = tw.FunctionObjective(example.loss, (images, targets))
    probe = example.trained(objective, params, 0.02, 0.04, tmp_path)
    assert [each.step for each in probe.records] == [0, 1, 2]
    expected = np.mean(np.sum((outputs - targets) ** 2, axis=1)) / 2
    assert probe.records[0].loss == pytest.approx(expected, rel=1e-12)
    assert probe.records[2].loss < probe.records[0].loss
    assert (tmp_path / "report.html").exists()
