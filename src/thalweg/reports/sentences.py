"""What the numbers say, in sentences: what was trained, and what was found.

Nothing here is known beforehand; each sentence is chosen by the data and carries its numbers.
"""

import json
from typing import Any

import numpy as np
import xarray as xr

from thalweg.measurement import BALANCE_ROUNDING
from thalweg.phases import Phase
from thalweg.quantities.of_runs import stability
from thalweg.reports.summary import summary
from thalweg.reports.wording import count, doubt, each_run, number, rates_of


def setting(results: xr.Dataset) -> str:
    """What was trained on what."""
    facts = results.attrs
    if "network" not in facts:
        samples = f", over {count(facts['samples'], 'sample')}," if facts["samples"] else ""
        return (
            f"A model of one's own with {count(facts['weights'], 'weight')}{samples} trained by "
            f"gradient descent at {count(results.sizes['learning_rate'], 'learning rate')} from "
            "one start."
        )
    loss = facts["loss_name"].replace("_", "-")
    if facts["problem"] == "TargetMatrix":
        data = (
            f"a target matrix of {count(facts['outputs'], 'row')} and {facts['features']} columns"
        )
    else:
        outputs = "" if facts["outputs"] == 1 else f" and {facts['outputs']} outputs"
        data = (
            f"{count(facts['samples'], 'sample')} with {count(facts['features'], 'feature')}"
            f"{outputs} ({loss} loss)"
        )
    return (
        f"A {facts['network']} network of depth {facts['depth']} with "
        f"{count(facts['weights'], 'weight')}, trained on {data} by gradient descent at "
        f"{count(results.sizes['learning_rate'], 'learning rate')} from one start."
    )


def findings(results: xr.Dataset) -> list[str]:
    """What was found, most important first."""
    rows = summary(results)
    return [
        each
        for each in (
            _phases(rows),
            _following(results, rows),
            _edge(results),
            _kinks(results),
            _flatness(results),
            _guaranteed(results),
            _self_check(results),
        )
        if each
    ]


_DID = {
    Phase.MONOTONE: "converges monotonically",
    Phase.CATAPULT: "converges through a catapult",
    Phase.EDGE: "trains at the edge of stability",
    Phase.OSCILLATING: "oscillates",
    Phase.SADDLE: "is stuck at a saddle",
    Phase.DESCENDING: "is still descending at the end",
    Phase.DIVERGED: "diverges",
    None: "has too few records for a verdict",
}


def _phases(rows: list[dict[str, Any]]) -> str:
    parts = []
    for phase, phrase in _DID.items():
        rates = [row["learning_rate"] for row in rows if row["phase"] is phase]
        if rates:
            parts.append(f"{rates_of(rates)} {phrase}")
    return f"Descent at {'; at '.join(parts)}."


def _following(results: xr.Dataset, rows: list[dict[str, Any]]) -> str:
    known = [
        row for row in rows if row["farthest"] is not None and row["phase"] is not Phase.DIVERGED
    ]
    if not known:
        return results.attrs["no_flow"]
    near = min(known, key=lambda row: row["farthest"])
    text = (
        f"At learning rate {near['learning_rate']:g}, descent is within "
        f"{number(near['farthest'])} of gradient flow at every recorded step"
    )
    text += doubt(results, near["farthest"])
    proven = near["proven_until"]
    if proven > 0:
        end = float(results.time.sel(learning_rate=near["learning_rate"]).max())
        whole = proven >= end * (1 - 1e-9)
        until = "to the end of the run" if whole else f"up to t = {number(proven)}"
        text += f"; the distance is certified {until}"
    if near["proven_forever"] is not None:
        text += f", and to stay below {number(near['proven_forever'])} at all later times"
    return text + "."


def _edge(results: xr.Dataset) -> str:
    """Where descent is at the edge: what it does there, and how well that is predicted."""
    if "central_swing" not in results:
        return ""
    told = []
    for rate, run in each_run(results):
        run = run.isel(record=run.central_swing.notnull().values)
        if not run.sizes["record"]:
            continue
        spread = float(run.central_spread[-1])
        begin, most = float(run.time[0]), float(run.central_distance.max())
        text = (
            f"At learning rate {rate:g}, from t = {number(begin, 2)} on, descent jumps from side "
            f"to side of a centre, at the end by {number(spread, 2)} to each side: it is at the "
            "edge of stability, where it does not follow the gradient flow. The central flow "
        )
        if most <= spread:
            text += "predicts both the centre and the jumps, and is never farther than "
        else:  # than half a jump: no better than a centre alone
            text += "is to predict the centre and the jumps, but here it is up to "
        text += f"{number(most, 2)} {'from' if most <= spread else 'away from'} descent"
        far = run.distance.max()
        text += (
            f"; the gradient flow is up to {number(float(far), 2)} away." if far.notnull() else "."
        )
        told.append(text)
    return " ".join(told)


def _kinks(results: xr.Dataset) -> str:
    """What the flow of a network with kinks met, and where its branch is uncertain."""
    if "flow_crossings" not in results:
        return ""
    most = int(results.flow_sliding.max())
    text = f"The flow crosses {count(int(results.flow_crossings[-1]), 'kink')}"
    text += f" and slides along up to {most:,} at a time" if most else " and slides along none"
    uncertain = float(results.branch_uncertain_from)
    if uncertain != uncertain:
        return f"{text}."
    met = results.flow_ridge_distance.where(results.flow_time <= uncertain)
    return (
        f"{text}. From t = {number(uncertain)} on its branch is uncertain: it came within "
        f"{number(float(met.min()), 2)} of a repelling kink, nearer than its error, so the exact "
        "flow may have passed on the other side."
    )


def _flatness(results: xr.Dataset) -> str:
    least = float(results.least_sharpness)
    if not least > 0:
        return ""
    critical = stability(results) / least
    if np.isnan(critical):
        return f"Every minimiser has sharpness at least {number(least, 4)}."
    above = [rate for rate in results.learning_rate.values if rate > critical]
    text = (
        f"Every minimiser has sharpness at least {number(least, 4)}, so no learning rate above "
        f"{number(critical)} can converge to one"
    )
    return f"{text}; {rates_of(above)} {_is_are(above)} above." if above else f"{text}."


def _guaranteed(results: xr.Dataset) -> str:
    if not results.attrs["certificates"]:
        return ""
    found = json.loads(results.attrs["certificates"])
    text = (
        f"{found['applying']} of {found['checked']} theorems apply at learning rate "
        f"{found['learning_rate']:g}"
    )
    if found["violated"]:
        return f"{text}; violated along this run: {', '.join(found['violated'])}."
    if not found["followed"]:
        return f"{text}; they were checked at the start alone, not along the run."
    return f"{text}; none is violated along this run."


def _self_check(results: xr.Dataset) -> str:
    """What is wrong with a run whose steps are no steps of descent; nothing where all is well."""
    if "balance_defect" not in results:
        return ""
    wrong = results.balance_defect.values > BALANCE_ROUNDING
    if not wrong.any():
        return ""
    most = number(float(np.nanmax(results.balance_defect.values)))
    return (
        "These numbers are not to be trusted: a step of gradient descent changes the imbalances of "
        "consecutive layers by eta^2 (G_{j+1}^T G_{j+1} - G_j G_j^T) exactly, but at "
        f"{rates_of(list(results.learning_rate.values[wrong]))} it differs from that by up to "
        f"{most} units of rounding."
    )


def _is_are(things: list[Any]) -> str:
    return "is" if len(things) == 1 else "are"
