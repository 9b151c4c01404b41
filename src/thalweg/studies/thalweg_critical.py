"""The largest learning rate that trains, over depth, and which prediction of it is right."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from typing_extensions import override

from thalweg import initialisation
from thalweg._typing import Weights
from thalweg.critical import CriticalLearningRate, critical_learning_rate
from thalweg.figures import critical_rates
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression
from thalweg.studies.marion2024_common import FEATURES, authors_data
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size

_KINDS = {
    "residual": (0.25, r"residual starts, $W_k = I + 0.25\,N_k / \sqrt{5 L}$"),
    "gaussian": (FEATURES**-0.5, r"Gaussian starts, deviation $1/\sqrt{5}$"),
}
_STEPS = 4000
_DEEP = 14  # beyond it the budget stops Gaussian starts, and not the rate
_BEST, _PAPER, _LIMIT = "2 / least sharpness", "2 / S_min", "2 / sharpness of the limit"


class CriticalOverDepth(AbstractStudy):
    """Measured critical learning rates, with every prediction divided by them."""

    name: ClassVar[str] = "thalweg-critical"
    title: ClassVar[str] = "the largest learning rate that trains, and what predicts it"
    protocol: ClassVar[str] = """
Linear networks of width 5 with one output, depth 2 to 40, on the data of marion2024's later code.
Residual starts of scale 0.25, read along a random direction, and Gaussian ones of deviation
1/sqrt(5), 12 of each. `critical_learning_rate` searches the largest rate with which 4,000 steps
leave a share of 0.01, and of 0.0001, of the start's excess loss, to 2 %. The interval is that of
the middle start. Predictions that belong to a start are compared start by start.
"""
    comparison: ClassVar[str] = """
* marion2024 predict that training fails above 2 / S_min. It fails earlier: their bound has the
  smallest eigenvalue of the data where the stronger bound has, in effect, the second moment along
  the regressor. What holds is the rate at which the *flattest* of all minimisers becomes unstable.
* Linear stability at the minimiser that slow descent finds is too pessimistic: larger steps do
  not settle there, but travel on to flatter ones.
* Residual starts of share 0.01 train slightly above 2 / least sharpness, where descent oscillates
  with a small amplitude; with a share of 0.0001 they do not.
* Gaussian starts deeper than 14 fail for want of steps and not of stability: with 64,000 steps
  those of depth 40 come to the same 1 / (A L) (see *The critical learning rate*).
"""

    depths: tuple[int, ...]
    starts: int
    shares: tuple[float, ...]

    @classmethod
    @override
    def of_size(cls, size: Size) -> "CriticalOverDepth":
        if size is Size.QUICK:
            return cls((2, 5), 12, (1e-2,))
        return cls((2, 3, 5, 7, 10, 14, 20, 28, 40), 12, (1e-2, 1e-4))

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        work = {
            f"{kind}-{depth}": partial(self._measured, kind, depth)
            for depth in self.depths
            for kind in _KINDS
        }
        return (
            parts.gather("case", work, progress).set_index(case=["depth", "kind"]).unstack("case")
        )

    def _measured(self, kind: str, depth: int) -> xr.Dataset:
        objective, weights = _case(kind, depth, self.starts)
        rows = [
            _row(critical_learning_rate(objective, weights, steps=_STEPS, share=share,
                                        certified=False))
            for share in self.shares
        ]  # fmt: skip
        return xr.concat(rows, "share").assign_coords(
            share=list(self.shares), depth=("case", [depth]), kind=("case", [kind])
        )

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        loose = results.isel(share=0).ratio
        residual, gaussian = loose.sel(kind="residual"), loose.sel(kind="gaussian")
        shallow = gaussian.where(gaussian.depth <= _DEEP, drop=True)
        found = []
        for words, ratios in (("residual", residual), (f"Gaussian to depth {_DEEP}", shallow)):
            for name, least, most, reported in (
                (_BEST, 0.88, 1.1, ""),
                (_PAPER, 1.2, 1.8, "no convergence above it"),
                (_LIMIT, 0.2, 0.8, "stability of the minimiser found by the flow"),
            ):
                own = ratios.sel(prediction=name)
                ends = (("least", own.min(skipna=False)), ("largest", own.max(skipna=False)))
                for extreme, value in ends:
                    statement = f"{words}: {name} over the measured rate, {extreme}"
                    found.append(Finding(statement, float(value), least, most, reported))
        scaled = (results.isel(share=0).lower * results.depth).sel(kind="residual")
        found.append(
            Finding("residual: rate x depth, largest over smallest",
                    float(scaled.max(skipna=False) / scaled.min(skipna=False)), 1.0, 1.3,
                    "the sharpness of minimisers grows linearly with depth")
        )  # fmt: skip
        found.append(
            Finding("residual: share of starts whose slow descent arrived, least over depths",
                    float(results.arrived.sel(kind="residual").min(skipna=False)), 0.5, 1.0)
        )  # fmt: skip
        if len(self.shares) > 1:
            beyond = residual.sel(prediction=_BEST).where(residual.depth > 2, drop=True)
            found.append(
                Finding("residual, deeper than 2: 2 / least sharpness over the measured rate, "
                        "largest: some oscillation trains",
                        float(beyond.max(skipna=False)), 0.88, 1.0)
            )  # fmt: skip
            strict = results.isel(share=-1).ratio.sel(kind="residual", prediction=_BEST)
            found.append(
                Finding("residual, strictest share: least ratio, which no oscillation can lower",
                        float(strict.min(skipna=False)), 0.98, 1.1)
            )  # fmt: skip
        return found

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        panels = {
            title: [
                _as_found(results.sel(kind=kind, share=share, depth=depth))
                for share in results.share.values
                for depth in results.depth.values
            ]
            for kind, (_, title) in _KINDS.items()
        }
        return {"rates": critical_rates(panels)}


def _case(kind: str, depth: int, starts: int) -> tuple[Objective, Weights]:
    data = authors_data(later=True)
    scale, _ = _KINDS[kind]
    if kind == "residual":
        direction = jax.random.normal(jax.random.key(100 + depth), (FEATURES,))
        readout = direction / jnp.linalg.norm(direction)
        network = LinearNetwork([FEATURES] * (depth + 1), readout)
        draw = partial(initialisation.residual, network, scale)
    else:
        network = LinearNetwork([FEATURES] * depth + [1])
        draw = partial(initialisation.gaussian, network, scale)
    keys = jax.random.split(jax.random.key(0), starts)
    return Objective(network, Regression(data.x, data.y, 1.0)), jax.vmap(lambda key: draw(key=key))(
        keys
    )


def _row(found: CriticalLearningRate) -> xr.Dataset:
    """The interval of every start, and each prediction with its ratio."""
    pairs = [(each.rate, found.ratio(each)) for each in found.predictions]
    rates, ratios = np.array(pairs, float).T  # None becomes NaN
    arrived = np.isfinite(found.prediction(_LIMIT).rates).mean()
    return xr.Dataset(
        {
            "lower": (("case",), [found.lower]),
            "upper": (("case",), [found.upper]),
            "lowers": (("case", "start"), found.lowers[None]),
            "uppers": (("case", "start"), found.uppers[None]),
            "arrived": (("case",), [arrived]),
            "predicted": (("case", "prediction"), rates[None]),
            "ratio": (("case", "prediction"), ratios[None]),
        },
        {"prediction": [each.name for each in found.predictions]},
    )


def _as_found(row: xr.Dataset) -> dict[str, Any]:
    """One depth, as the picture wants it."""
    return {
        "depth": int(row.depth),
        "criterion": f"leaves at most {float(row.share):g} of the start's excess loss",
        "lower": float(row.lower),
        "upper": float(row.upper) if np.isfinite(row.upper) else None,
        "lowers": row.lowers.values.tolist(),
        "uppers": [each if np.isfinite(each) else None for each in row.uppers.values.tolist()],
        "predictions": [
            {"name": str(name), "rate": float(rate) if np.isfinite(rate) else None}
            for name, rate in zip(row.prediction.values, row.predicted.values, strict=True)
        ],
    }
