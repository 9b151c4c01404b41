"""The failures of arora2019's claims 4 and 5: no balance, or no margin, and no convergence."""

from collections.abc import Mapping
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from scipy.optimize import root_scalar
from typing_extensions import override

from thalweg import initialisation
from thalweg._bisection import bisected
from thalweg.dynamics import descend
from thalweg.figures import PALETTE, STYLE
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import TargetMatrix
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, largest, least
from thalweg.theorems.convergence.failure import Unbalanced, printed_factor, printed_growth_claims

_EIGENVALUES = (1.5, -0.5)
_FLOOR = 0.125  # half the square of the negative one
_DEPTHS = (2, 4, 6)
_USUAL = 0.1
_KNOWN = {(2, 10): 0.207100, (2, 100): 0.125005, (4, 10): 0.194592, (4, 100): 0.128243,
          (4, 1000): 0.125047}  # fmt: skip
"""The loss at 0.1 for a depth and a step, by the scalar recursion, to six digits."""


class Failures(AbstractStudy):
    """Losses that grow doubly exponentially, and losses that stall."""

    rates: tuple[float, ...]
    steps: int

    name: ClassVar[str] = "arora2019-failures"
    title: ClassVar[str] = "without balance descent diverges, without margin it stalls"
    protocol: ClassVar[str] = """
Two, four and six layers; learning rates 1e-4, 0.01, 0.1, 1 and 10. Claim 4: the target is the
identity, the layers diag(w_j, 1) with a margin of 3/4 and a factor A between the halves of the
layers that makes descent at the given learning rate diverge. Four steps are followed, in decimal
arithmetic of sixty digits, since the loss soon leaves floating point: with six layers at the second
or third step, with four at the third or fourth, with two at the fourth or later. Claim 5: all
layers are the identity, which is perfectly balanced, and the target diag(1.5, -0.5) has a negative
eigenvalue; 1000 steps in floating point. A loss that leaves it counts as infinite from there on.
The printed factor A of claim 4 is tried for growing margins, by bisection, until one of the bounds
of its proof (Lemma 17, as printed) is wrong within four steps at a learning rate of 0.01.
"""
    comparison: ClassVar[str] = """
arora2019 state both without a figure, for every learning rate and every even number of layers.
Claim 4 is seen for every depth and learning rate tried; the loss grows doubly exponentially, faster
than the paper's "at least exponentially": each increment of its logarithm is 2 N - 1 times the one
before. The factor A is a corrected one. With the printed one a bound in the proof is wrong for
margins above 0.894 (two layers), 0.891 (four) and 0.890 (six); this concerns the proof, and is no
counterexample to the claim. Claim 5: no loss is ever below half the square of the negative
eigenvalue, 0.125. At a learning rate of 0.1 it falls to 0.125 with two layers; with four and six it
gets there slowly (0.12505 and 0.12517 after 1000 steps), because the saddle is degenerate. At 1e-4
it is still on its way after 1000 steps. At 10, and with four and six layers at 1, it diverges; at 1
with two layers it comes close to 0.125 again and again, but never settles.
"""
    revision: ClassVar[int] = 2

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Failures":
        if size is Size.QUICK:
            return cls((0.01, _USUAL, 1.0), 1000)
        return cls((1e-4, 1e-2, _USUAL, 1.0, 10.0), 1000)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        growing = [[Unbalanced(n, eta, 0.75).log_losses() for eta in self.rates] for n in _DEPTHS]
        stalling = [self._stalled(depth) for depth in _DEPTHS]
        progress("failures", 1.0)
        return xr.Dataset(
            {
                "log_loss": (("depth", "learning_rate", "step"), np.asarray(growing)),
                "stalled": (("depth", "learning_rate", "later"), np.stack(stalling)),
                "printed_margin": ("depth", [_last_proven_margin(depth) for depth in _DEPTHS]),
            },
            {
                "depth": list(_DEPTHS),
                "learning_rate": list(self.rates),
                "step": np.arange(5),
                "later": np.arange(self.steps + 1),
            },
        )

    def _stalled(self, depth: int) -> np.ndarray:
        """The loss at every step, for all learning rates; infinite where it has diverged."""
        network = LinearNetwork([2] * (depth + 1))
        objective = Objective(network, TargetMatrix(np.diag(_EIGENVALUES)))
        start = initialisation.identity(network)
        run = descend(objective, start, learning_rate=np.asarray(self.rates), steps=self.steps)
        return np.where(np.isfinite(run.loss), run.loss, np.inf)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        logs = results.log_loss.isel(step=slice(1, None))
        floor = 2 * np.log(2.0**results.depth - 1) - np.log(2)
        gains = logs.diff("step")
        power = 2 * results.depth.values[:, None, None] - 1
        ratio = gains.values[..., 1:] / (power * gains.values[..., :-1])
        rows = [
            Finding("claim 4: log of the loss at the start, largest difference to log(1 / 32)",
                    largest(abs(results.log_loss.isel(step=0) + np.log(32))), 0.0, 1e-9),
            Finding("claim 4: log of the loss after the start, less its proven floor, least",
                    least(logs - floor), 0.0, reported="never converges"),
        ]  # fmt: skip
        # Once the loss is large, each step takes log l to (2 N - 1) log l and a constant.
        growth = "claim 4: increment of log l / (2 N - 1) times the one before"
        rows += [
            Finding(f"{growth}, {kind}", float(choose(ratio)), 0.95, 1.05, "at least exponentially")
            for kind, choose in (("least", np.min), ("largest", np.max))
        ]
        for depth, row in results.printed_margin.groupby("depth"):
            # Where (1 - c) c^(1 - 1/N), which the proof takes for 1/10 or more, is 1/10.
            known = _edge_of_the_print(int(depth))
            rows.append(
                Finding(f"claim 4, {depth} layers: margin up to which the printed proof holds",
                        float(row.item()), known - 1e-4, known + 1e-4, "up to 1")
            )  # fmt: skip
        for (depth, step), known in _KNOWN.items():
            loss = results.stalled.sel(depth=depth, learning_rate=_USUAL, later=step)
            # A unit of the last digit that is known.
            rows.append(
                Finding(f"claim 5, {depth} layers, rate {_USUAL}: loss at step {step} - {known}",
                        float(loss) - known, -1e-6, 1e-6)
            )  # fmt: skip
        lowest = results.stalled.min("later", skipna=False) / _FLOOR
        rows += [
            Finding(f"claim 5, {depth} layers: least loss / (half the square of -0.5), all rates",
                    least(lowest.sel(depth=depth)), 1.0 - 1e-9, reported="at least 1")
            for depth in results.depth.values
        ]  # fmt: skip
        return rows

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0), layout="constrained")
            depths = dict(zip(results.depth.values, ("o-", "s--", "^:"), strict=True))
            for colour, rate in zip(PALETTE, results.learning_rate.values, strict=False):
                for depth, style in depths.items():
                    row = results.log_loss.sel(learning_rate=rate, depth=depth) / np.log(10)
                    left.semilogy(row.step[1:], row[1:], style, color=colour, ms=4)
                    loss = results.stalled.sel(learning_rate=rate, depth=depth) - _FLOOR
                    shown = loss.where(np.isfinite(loss) & (loss > 0))
                    right.loglog(
                        loss.later[1:], shown[1:], style[1:], color=colour, linewidth=1.2,
                        zorder=2 - 0.1 * rate,  # what does not settle below the others
                    )  # fmt: skip
                left.plot([], [], color=colour, label=rf"$\eta$ = {rate:g}")
            for depth, style in depths.items():
                left.plot([], [], style, color="0.3", ms=4, label=f"{depth} layers")
            left.set_xticks(results.step.values[1:])
            left.set_xlabel("step")
            left.set_ylabel(r"$\log_{10}$ of the loss")
            left.set_title("Claim 4, unbalanced: the loss starts at 1/32 and explodes")
            right.set_ylim(1e-6, 1e3)
            right.set_xlabel("step")
            right.set_ylabel("loss above 0.125")
            right.set_title("Claim 5, balanced, without margin: never below 0.125")
            handles, labels = left.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return {"failures": figure}


def _edge_of_the_print(depth: int) -> float:
    """The margin at which (1 - c) c^(1 - 1/N) is 1/10."""
    power = 1 - 1 / depth
    return float(root_scalar(lambda c: (1 - c) * c**power - 0.1, bracket=(0.75, 0.99)).root)


def _last_proven_margin(depth: int, learning_rate: float = 0.01) -> float:
    """The margin up to which Lemma 17 holds with what is printed, by bisection."""

    def holds(margin: float) -> bool:
        factor = printed_factor(depth, learning_rate, margin)
        start = Unbalanced(depth, learning_rate, margin, factor)
        return not any(claim.fails for claim in printed_growth_claims(start))

    return bisected(holds, 0.75, 0.99, halvings=20)
