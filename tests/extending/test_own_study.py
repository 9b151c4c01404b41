"""A study of one's own: data computed part by part, findings that can fail, pictures, a page."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import thalweg as tw
from thalweg import studies
from thalweg.studies import AbstractStudy, Finding, Size


class EscapeTimes(AbstractStudy):
    """How long a network of depth two stays near the saddle at zero."""

    scales: tuple[float, ...]
    name = "own-escape"
    title = "smaller starts leave the saddle later"
    protocol = "Two scalar layers that start at s each, on the loss (w_2 w_1 - 1)^2 / 2."
    comparison = "The flow leaves after log(1 / s) / 1, up to a constant."

    @classmethod
    def of_size(cls, size):
        return cls((1e-2, 1e-3) if size is Size.QUICK else (1e-2, 1e-3, 1e-4, 1e-5))

    def compute(self, parts, progress):
        rows = []
        for number, scale in enumerate(self.scales):
            rows.append(parts.get(f"scale-{scale:g}", lambda scale=scale: self._escape(scale)))
            progress("scales", (number + 1) / len(self.scales))
        return xr.concat(rows, "scale")

    def _escape(self, scale):
        """The time at which the product is half of the target, found on the flow."""
        objective = tw.Objective(tw.LinearNetwork([1, 1, 1]), tw.TargetMatrix([1.0]))
        layer = np.full((1, 1), scale)
        flow = tw.flow(objective, (layer, layer), times=np.linspace(0, 20, 2001))
        product = (flow.weights[1] @ flow.weights[0])[:, 0, 0]
        time = float(np.interp(0.5, product, flow.times))
        return xr.Dataset({"escape": ("scale", [time])}, {"scale": [scale]})

    def findings(self, results):
        gained = np.diff(results.escape) / np.diff(np.log(1 / results.scale))
        return [Finding("time gained per factor e, nearest to 1", float(gained[-1]), 0.99, 1.01)]

    def draw(self, results):
        figure, axes = plt.subplots()
        axes.semilogx(results.scale, results.escape, "o-")
        axes.set(xlabel="scale of the start", ylabel="time until half is learnt")
        return {"escape": figure}


def test_it_is_conducted_and_its_finding_is_confirmed(tmp_path):
    outcome = studies.conduct(EscapeTimes, Size.QUICK, tmp_path)
    assert [finding.verdict.value for finding in outcome.findings] == ["confirmed"]
    assert all(picture.exists() for picture in outcome.pictures)
    assert "1 of 1 findings confirmed" in (outcome.folder / "page.md").read_text("utf-8")


def test_its_finding_can_fail():
    results = xr.Dataset({"escape": ("scale", [5.0, 5.1])}, {"scale": [1e-2, 1e-3]})
    (finding,) = EscapeTimes.of_size(Size.QUICK).findings(results)
    assert finding.verdict.value == "violated"


def test_the_command_line_knows_it_once_it_is_registered(tmp_path):
    studies.register(EscapeTimes)
    try:
        assert studies.find(["own-escape"]) == [EscapeTimes]
        with pytest.raises(tw.InputError, match="must be new, got 'own-escape'"):
            studies.register(EscapeTimes)
    finally:
        del studies.STUDIES["own-escape"]
