"""The snippet of docs/pytorch.md, and the examples in PyTorch, shortened."""

import importlib.util
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "thalweg[torch]"')
ROOT = Path(__file__).parents[1]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_snippet_runs_as_it_stands():
    """Its first lines are the README's; it trains, and the trained weights are in the module."""
    text = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
    snippet = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).double()
    x, y = torch.randn(20, 3).double(), torch.randn(20, 1).double()
    before = torch.nn.functional.mse_loss(module(x), y).item()
    names = {"module": module, "loss_fn": torch.nn.functional.mse_loss, "x": x, "y": y}
    exec(snippet, names)
    after = torch.nn.functional.mse_loss(module(x), y).item()
    assert after < before
    assert names["run"].loss[-1] == pytest.approx(after, rel=1e-12)
    assert names["flow"].error.max() < 1e-4


def test_the_tanh_network(tmp_path, capsys, monkeypatch):
    example = loaded("tanh_mlp_torch")
    monkeypatch.setattr(example, "IMAGES", 40)
    monkeypatch.setattr(example, "WIDTHS", (64, 6, 6, 10))
    example.main(tmp_path, time=1.0)
    assert (tmp_path / "tanh-mlp.png").read_bytes().startswith(b"\x89PNG")
    assert "gradient flow: sharpness" in capsys.readouterr().out


def test_the_transformer(tmp_path, capsys, monkeypatch):
    """It prints what its probes saw, and draws it."""
    example = loaded("sorting_transformer_torch")
    monkeypatch.setattr(example, "SEQUENCES", 16)
    monkeypatch.setattr(example, "BATCH", 8)
    monkeypatch.setattr(example, "WIDTH", 4)
    example.main(tmp_path, steps=2)
    assert (tmp_path / "sorting-transformer.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("2 / rate = 10") == 2
