"""A sentence or two for every picture, written from its data."""

import numpy as np
import xarray as xr

from thalweg._quantity import Quantity
from thalweg.phases import Phase
from thalweg.quantities import QUANTITIES
from thalweg.quantities.of_runs import edges, is_validated, stability
from thalweg.reports.summary import summary
from thalweg.reports.wording import by_rate, doubt, each_run, number, rates_of

_CONSERVED = ("unbalancedness", "norm_imbalance")  # along every gradient flow
_ROUGHLY = 1e-3  # relative: differences below this are not worth a word


def captions(results: xr.Dataset) -> dict[str, str]:
    """A sentence or two for each picture, by its name."""
    told = {
        "loss": _about_loss(results),
        "distance": _about_distance(results),
        "sharpness": _about_sharpness(results),
        "smallest_eigenvalue": _about_smallest(results),
    }
    if "flow_crossings" in results:
        told |= _about_kinks(results)
    if "central_swing" in results:
        told["central_swing"] = _about_oscillation(results)
    for name, quantity in QUANTITIES.items():
        if quantity.measure is not None and name in results:
            tell = _about_balance if name in _CONSERVED else _about
            told[name] = tell(results, quantity)
    return told


def _about_loss(results: xr.Dataset) -> str:
    known = bool(results.minimum.notnull())
    what = f"Loss above its minimum {number(float(results.minimum), 4)}" if known else "Loss"
    start = float(results.excess[0, 0])
    ends = [
        (row["learning_rate"], number(row["excess"], 2))
        for row in summary(results)
        if row["phase"] is not Phase.DIVERGED
    ]
    came = f"it comes to {by_rate(ends)}" if ends else "every run diverges"
    text = f"{what}, against time. From {number(start)} {came}"
    if "flow_excess" in results:
        text += f"; the flow comes to {number(float(results.flow_excess[-1]), 2)}"
    rising = [
        rate
        for rate, run in each_run(results)
        if int(run.diverged_at) >= 0 or _rises(run.excess.values)
    ]
    text += f". It rises on the way at {rates_of(rising)}." if rising else ". It never rises."
    smallest = results.isel(learning_rate=int(np.argmin(results.learning_rate.values)))
    if np.isfinite(smallest.flow_loss_upper.values[1:]).any():
        text += " Grey: where the flow's loss is proven to be, from the smallest step alone."
    return text


def _about_distance(results: xr.Dataset) -> str:
    text = "Euclidean distance between the weights of descent and of the flow at the same time. "
    far = [
        (row["learning_rate"], number(row["farthest"], 2))
        for row in summary(results)
        if row["farthest"] is not None and row["phase"] is not Phase.DIVERGED
    ]
    least = min(
        (row["farthest"] for row in summary(results) if row["farthest"] is not None), default=0.0
    )
    text += (
        f"At the recorded steps it is at most {by_rate(far)}{doubt(results, least)}. "
        if far
        else ""
    )
    if is_validated(results):
        widest = number(float(results.flow_error.max()), 2)
        return f"{text}Each is certified up to {widest}, the error that is proven of the flow."
    not_validated = results.attrs.get("not_validated", "")  # which older results have not
    text += f"{not_validated} " if not_validated else ""
    if not bool((results.proven_until > 0).any()):
        return text + (results.attrs["no_tube"] or "Nothing is proven of it beyond the start.")
    until = [
        (rate, number(float(run.proven_until)))
        for rate, run in each_run(results)
        if float(run.proven_until) > 0
    ]
    text += f"Bands are certified by each run alone, up to t = {by_rate(until)}"
    if "flow_error" not in results:
        return f"{text}."
    outside = _outside(results)
    if outside:
        return f"{text}; {outside} measured distances lie outside of them, which must not be."
    return f"{text}; every measured distance lies in its band, up to the error of the flow."


def _about_oscillation(results: xr.Dataset) -> str:
    known = [(rate, run) for rate, run in each_run(results) if run.central_swing.notnull().any()]
    sizes = [
        (rate, number(float(run.central_spread.dropna("record")[-1]), 2)) for rate, run in known
    ]
    text = QUANTITIES["central_swing"].caption
    return f"{text} At the end it is {by_rate(sizes)}." if sizes else text


def _about_kinks(results: xr.Dataset) -> dict[str, str]:
    """What the flow meets, by picture."""
    crossings, sliding = results.flow_crossings, results.flow_sliding
    nearest = float(results.flow_ridge_distance.min())
    told = {name: QUANTITIES[f"flow_{name}"].caption for name in ("crossings", "sliding")}
    near = QUANTITIES["flow_ridge_distance"].caption
    near += f" Its least value is {number(nearest, 2)}." if np.isfinite(nearest) else ""
    uncertain = float(results.branch_uncertain_from)
    near += f" Grey: from t = {number(uncertain)} on." if np.isfinite(uncertain) else ""
    return {
        "flow_crossings": f"{told['crossings']} At the end it is {int(crossings[-1]):,}.",
        "flow_sliding": f"{told['sliding']} At most it slides along {int(sliding.max()):,}"
        f", at the end along {int(sliding[-1]):,}.",
        "flow_ridge_distance": near,
    }


def _about_sharpness(results: xr.Dataset) -> str:
    limit = stability(results)
    if "sharpness" not in results or np.isnan(limit):
        return "Largest eigenvalue of the loss's Hessian. "
    edge = f"{number(limit)}/η"
    text = (
        f"Largest eigenvalue of the loss's Hessian; above the dashed {edge} descent is unstable. "
    )
    crossing, below = [], []
    for rate, run in each_run(results):
        values = run.sharpness.values[np.isfinite(run.sharpness.values)]
        (crossing if np.any(values > float(edges(run))) else below).append(rate)
    if crossing:
        text += f"It goes beyond {edge} at {rates_of(crossing)}"
        text += f" and stays below at {rates_of(below)}. " if below else ". "
    else:
        text += "It stays below at every learning rate. "
    ends = [
        (row["learning_rate"], number(row["sharpness"]))
        for row in summary(results)
        if row["sharpness"] is not None and row["phase"] is not Phase.DIVERGED
    ]
    text += f"At the end it is {by_rate(ends)}. " if ends else ""
    least, greatest = float(results.least_sharpness), float(results.greatest_sharpness)
    if least > 0 and greatest == greatest:
        text += (
            f"Grey: where theory puts the minimiser found, {number(least)} to {number(greatest)}."
        )
    elif least > 0:
        text += f"Grey: no minimiser is as flat as this (below {number(least)})."
    return text.strip()


def _about_smallest(results: xr.Dataset) -> str:
    if "smallest_eigenvalue" not in results:
        return ""
    settled = results.where(results.diverged_at < 0)
    values = settled.smallest_eigenvalue.values
    if not np.isfinite(values).any():
        values = results.smallest_eigenvalue.values
    low = float(np.nanmin(values))
    text = "Smallest eigenvalue of the Hessian; where it is negative the loss is not convex. "
    size = float(np.nanmax(np.abs(results.sharpness.values[:, 0])))
    if low > -1e-9 * max(size, 1e-12):
        return text + "It is never negative here."
    ends = [
        (row["learning_rate"], number(row["smallest_eigenvalue"], 2))
        for row in summary(results)
        if row["smallest_eigenvalue"] is not None and row["phase"] is not Phase.DIVERGED
    ]
    return text + f"Its lowest value is {number(low)}" + (
        f"; at the end it is {by_rate(ends)}." if ends else "."
    )  # fmt: skip


def _about_balance(results: xr.Dataset, quantity: Quantity) -> str:
    values = results[quantity.name]
    start = float(values[0, 0])
    text = f"{_sentence(quantity)} {quantity.caption} Here it starts at "
    text += f"{number(start)}; " if start > 1e-12 else "zero up to rounding; "
    changes = []
    for rate, run in each_run(results):
        if int(run.diverged_at) < 0:
            change = float(np.nanmax(np.abs(run[quantity.name].values - start)))
            changes.append((rate, number(change, 2)))
    return text + (
        f"descent changes it by at most {by_rate(changes)}." if changes else "every run diverges."
    )


def _about(results: xr.Dataset, quantity: Quantity) -> str:
    """What the registry says of a quantity, and how it changes."""
    ends = []
    for rate, run in each_run(results):
        if int(run.diverged_at) < 0:
            ends.append((rate, number(float(run[quantity.name][-1]))))
    start = number(float(results[quantity.name][0, 0]), 2)
    told = quantity.caption or _sentence(quantity)
    return f"{told} It starts at {start} and " + (
        f"ends at {by_rate(ends)}." if ends else "every run diverges."
    )


def _sentence(quantity: Quantity) -> str:
    return f"{quantity.long_name[:1].upper()}{quantity.long_name[1:]}."


def _rises(values: np.ndarray) -> bool:
    """Whether there is an increase that is more than rounding of the largest value."""
    return bool(np.any(np.diff(values) > 1e-12 * values[0] + _ROUGHLY * values[:-1]))


def _outside(results: xr.Dataset) -> int:
    """How many measured distances leave their band by more than the flow's own error."""
    error = float(results.flow_error.max())
    low, high = results.distance_lower - error, results.distance_upper + error
    return int(((results.distance < low) | (results.distance > high)).sum())
