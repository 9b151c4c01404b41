"""One folder of each kind of results, made by next to nothing; and how an answer refuses one."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import pytest
import xarray as xr

from thalweg import experiment, reports, storage, studies
from thalweg.storage.files import only_writer
from thalweg.studies import AbstractStudy, Finding, Size, conduct
from thalweg.studies.parts import Parts
from thalweg.sweeps import sweep

RUN = experiment.from_toml(
    """
    title = "Two runs"
    data = {source = "target", matrix = [[0.8, -0.6]]}
    network = {depth = 2, width = 2}
    start = {kind = "aligned", norm = 0.2, cosine = 0.6}
    training = {learning_rate = [0.1, 2.5], time = 30.0, records = 10}
    flow = {tube = "off"}
    curvature = {enabled = false}
    certificates = {enabled = false}
    """
)
SWEEP = experiment.from_values(
    {
        "data": {"features": 2, "samples": 6},
        "network": {"depth": 2},
        "training": {"learning_rate": 0.1, "steps": 20},
        "sweeping": {"records": 9},
        "curvature": {"enabled": False},
        "sweep": [{"data.seed": [0, 1, 2], "start.seed": [0, 1]}],
    }
)


class Cubes(AbstractStudy):
    """A study that computes next to nothing."""

    name: ClassVar[str] = "cubes"
    title: ClassVar[str] = "cubes grow"
    protocol: ClassVar[str] = "Take cubes."
    comparison: ClassVar[str] = "As expected."

    @classmethod
    def of_size(cls, size: Size) -> "Cubes":
        return cls()

    def compute(self, parts: Parts, progress: Any) -> xr.Dataset:
        def cube(i: int) -> xr.Dataset:
            return xr.Dataset({"cube": ("i", [float(i**3)])}, {"i": [i]})

        rows = [parts.get(f"cube-{i}", lambda i=i: cube(i)) for i in range(3)]
        progress("cubes", 1.0)
        return xr.concat(rows, "i")

    def findings(self, results: xr.Dataset) -> list[Finding]:
        return [Finding("the last cube", float(results.cube[-1]), 8.0, 8.0)]

    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        figure, axes = plt.subplots()
        axes.plot(results.i, results.cube)
        return {"picture": figure}


class Stop(Exception):
    """In place of a kill."""


def _make_run(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, only_writer(folder):
        # Pictures take longest to draw, and nothing reads them.
        drawing = import_module("thalweg.figures.overview")
        patch.setattr(drawing, "picture_names", lambda results: ("overview",))
        patch.setattr(drawing, "overview", lambda results: plt.figure())
        reports.write(experiment.perform(RUN), folder)


def _make_unfinished_run(folder: Path) -> None:
    def stop(stage: str, share: float) -> None:
        if (stage, share) == ("quantities", 1.0):
            raise Stop

    with only_writer(folder), pytest.raises(Stop):
        experiment.perform(RUN, progress=stop, kept_in=folder)


def _make_unfinished_sweep(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.blocks.BlockStore, "assemble", lambda store: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sweep(SWEEP, folder)


def _make_unfinished_study(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies.conducting, "write_results", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            conduct(Cubes, Size.QUICK, folder)


MAKERS: dict[str, Callable[[Path], object]] = {
    "run": _make_run,
    "unfinished run": _make_unfinished_run,
    "sweep": lambda folder: sweep(SWEEP, folder),
    "unfinished sweep": _make_unfinished_sweep,
    "study": lambda folder: conduct(Cubes, Size.QUICK, folder),
    "unfinished study": _make_unfinished_study,
}
"""By kind; those that are unfinished have all their parts but no results."""


def make_all(root: Path) -> dict[str, Path]:
    """The folder of each kind."""
    for kind, make in MAKERS.items():
        make(root / kind)
    places = {kind: root / kind for kind in MAKERS}
    return places | {kind: places[kind] / "cubes-quick" for kind in MAKERS if "study" in kind}


def refused(answer: tuple[int, str, str], folder: Path) -> bool:
    """Whether the answer is one sentence that names the folder, with code 2."""
    code, printed, complaint = answer
    told = complaint.startswith("error: ") and complaint.count("\n") == 1
    return code == 2 and told and not printed and str(folder) in complaint
