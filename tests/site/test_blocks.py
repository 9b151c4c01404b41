"""Every block of code in the README and the pages is run, or says why not.

A block that is not meant to be run has `<!-- not run: reason -->` on the line above it. All others
are run here, page by page in one namespace, which begins with what pages take as given; but for
what is run elsewhere, by the tests named in `ELSEWHERE`.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse
import typer

import thalweg as tw
from thalweg import experiment as experiments
from thalweg.cli import app
from thalweg.cli.base import read_experiment

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    "docs/extending.md": "tests/extending: the page is written from its files",
    "docs/reference": "tests/site/test_reference.py",
    "docs/statements": "tests/site/test_statements.py",
    "docs/tutorials": "tests/site/test_tutorials.py, and whenever the site is built",
}
BLOCK = re.compile(r"(?:<!-- not run: ([^>]+) -->\n)?^```([\w{}:-]*)[^\n]*\n(.*?)^```", re.M | re.S)
DIRECTIVE = re.compile(r"\{[\w:-]+\}")


class Block(NamedTuple):
    """A block of code, and why it is not run."""

    page: str
    language: str
    code: str
    reason: str


def found() -> list[Block]:
    """All blocks that are not run elsewhere."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = [(path, path.relative_to(ROOT).as_posix()) for path in pages]
    return [
        Block(name, language, code, (reason or "").strip())
        for path, name in named
        if not any(name == each or name.startswith(f"{each}/") for each in ELSEWHERE)
        for reason, language, code in BLOCK.findall(path.read_text("utf-8"))
        if not DIRECTIVE.fullmatch(language)
    ]


BLOCKS = found()
PAGES = sorted({each.page for each in BLOCKS if each.language == "python" and not each.reason})


def test_every_block_is_run_or_says_why_not():
    assert len(BLOCKS) > 30
    known = {"python", "sh", "toml"}
    for each in BLOCKS:
        assert each.language in known or each.reason, f"{each.page}: what runs this?\n{each.code}"
    for place in ELSEWHERE:
        assert (ROOT / place).exists(), place


def tiny_experiment() -> tw.Experiment:
    return tw.Experiment.model_validate(
        {
            "data": {"samples": 10, "features": 2},
            "network": {"depth": 2, "width": 2},
            "training": {"steps": 19},
            "sweep": [
                {
                    "training.learning_rate": [0.02, 0.05],
                    "start.scale": [0.3, 0.4],
                    "start.seed": [0, 1],
                }
            ],
        }
    )


def given(page: str) -> dict:
    """What a page takes as given: an objective with a start, a run, a loss of one's own."""
    x, y, _ = tw.data.gaussian_regression(jax.random.key(0), samples=20, features=3)
    network = tw.LinearNetwork([3, 3, 1])
    objective = tw.Objective(network, tw.Regression(x, y))
    weights = tw.initialisation.gaussian(network, 0.5, key=jax.random.key(1))
    run = tw.descend(objective, weights, learning_rate=0.02, steps=100)
    names = {"tw": tw, "jax": jax, "jnp": jnp, "np": np, "scipy": scipy, "x": x, "y": y,
             "objective": objective, "weights": weights, "run": run}  # fmt: skip
    makers = {"docs/curvature.md": curved, "docs/motions.md": moved, "docs/own-models.md": owned,
              "docs/phases.md": phased, "docs/pytorch.md": torched, "docs/sweeps.md": swept,
              "docs/site/pages/start/report.md": reported}  # fmt: skip
    return names | (makers[page](x, y) if page in makers else {})


def curved(x, y):
    keys = jax.random.split(jax.random.key(2), 2)
    network = tw.LinearNetwork([3, 3, 1])
    starts = tw.initialisation.many(tw.initialisation.gaussian, network, np.full(2, 0.5), keys)
    matrix = np.diag([3.0, 1.0, -2.0])
    return {"starts": starts, "matrix": matrix, "A": matrix, "size": 3,
            "sparse_matrix": scipy.sparse.csr_matrix(matrix)}  # fmt: skip


def moved(x, y):
    return {"first": np.full((3, 4), 0.3), "second": np.full(4, 0.2)}


def phased(x, y):
    return {"minimum": 0.0, "sharpness": np.full(101, 1.0), "results": tw.sweep(tiny_experiment())}


def swept(x, y):
    return {"experiment": tiny_experiment()}


def reported(x, y):
    """The folder that the page's own first command leaves, of a smaller experiment."""
    from thalweg import reports

    changes = {"training.learning_rate": [0.02, 0.05], "training.steps": 40, "network.depth": 2}
    results = experiments.perform(experiments.changed(tw.Experiment(), changes))
    reports.write(results, Path("thalweg-run"))
    return {}


def loss(params, batch):
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"]) - y) ** 2)


def owned(x, y):
    def update(params, state, batch):
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params, batch)), state

    return {"loss": loss, "params": {"w": np.zeros(3)}, "key": jax.random.key(0),
            "state": None, "update": update, "batches": [(x, y)] * 3, "optax": optax}  # fmt: skip


def torched(x, y):
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'thalweg[torch]'")
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).double()
    data = torch.tensor(np.asarray(x)), torch.tensor(np.asarray(y))[:, None]
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    return {"module": module, "loss_fn": torch.nn.functional.mse_loss, "x": data[0],
            "y": data[1], "loader": [data], "optimiser": optimiser}  # fmt: skip


def library(code: str, x) -> dict:
    """The model of another library, for a block that begins with its name."""
    if code.startswith("# Equinox"):
        return {"eqx": eqx, "model": eqx.nn.MLP(3, "scalar", 4, 1, key=jax.random.key(0))}
    flax = pytest.importorskip("flax", reason="needs flax: pip install 'thalweg[dev]'")
    if code.startswith("# Flax nnx"):
        from flax import nnx

        return {"nnx": nnx, "model": nnx.Linear(3, 1, rngs=nnx.Rngs(0), param_dtype=float)}
    from flax import linen

    assert flax
    return {"model": linen.Dense(1, param_dtype=float)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("page", PAGES)
def test_python_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = given(page)
    x, y = names["x"], names["y"]
    for block in BLOCKS:
        if block.page != page or block.language != "python" or block.reason:
            continue
        if re.match(r"# (Equinox|Flax)", block.code):
            exec(compile(block.code, page, "exec"), {**names, **library(block.code, x)})
            continue
        more = torched(x, y) if "tw.torch" in block.code and "module" not in names else {}
        if more:
            exec(compile(block.code, page, "exec"), {**names, **more})
        else:
            exec(compile(block.code, page, "exec"), names)


COMMANDS = [
    (block.page, line.partition("  #")[0].strip())
    for block in BLOCKS
    if block.language == "sh" and not block.reason
    for line in block.code.splitlines()
    if line.strip()
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_are_understood(page, line):
    """Command and options are there, and fields that are set are fields; nothing is carried out."""
    program, name, *arguments = shlex.split(line)
    assert program == "thalweg", f"{page}: {line}"
    chosen = typer.main.get_command(app).commands[name]
    context = chosen.make_context(name, arguments)
    read_experiment(None, [*(context.params.get("changes") or ())])


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language == "toml"])
def test_experiment_files_are_understood(block):
    experiments.from_toml(block.code)
