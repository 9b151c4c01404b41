"""What marion2024 says of its sweeps, as numbers that can be out of their interval.

All are functions of the dataset of a sweep, see `marion2024_sweep`. A learning rate is *small* if
the paper draws it in its pictures of the sharpness, which is up to 0.07.
"""

from collections.abc import Sequence

import xarray as xr

from thalweg.studies.study import Finding

CONVERGED = 1e-6
"""A squared distance below which a run counts as having reached the minimiser."""


def small_rates(results: xr.Dataset) -> list[float]:
    """The learning rates at which training ends at a minimiser."""
    return [float(rate) for rate in results.learning_rate if rate < 0.09]


def medians(values: xr.DataArray) -> xr.DataArray:
    """The median over the runs that did not diverge; NaN where all did."""
    return values.median("repetition", skipna=True)


def learning(results: xr.Dataset, up_to_scale: float) -> list[Finding]:
    """Which learning rates reach the minimiser, and that the scale does not matter for it."""
    distance = medians(results.final_distance).sel(scale=slice(None, up_to_scale + 1e-9))
    small = distance.sel(learning_rate=small_rates(results))
    return [
        Finding(
            f"median squared distance after training, the worst of learning rates up to 0.07 and "
            f"scales up to {up_to_scale:g}",
            float(small.max(skipna=False)),
            most=CONVERGED,
            reported="training succeeds below a critical value independent of the scale",
        ),
        Finding(
            "the same at learning rate 0.1, where few minimisers are flat enough to be stable",
            float(distance.sel(learning_rate=0.1).max(skipna=False)),
            most=1e-2,
            reported="succeeds for η ≤ 0.1",
        ),
        Finding(
            "median squared distance at learning rate 0.2, the best of all scales that do not "
            "all diverge",
            float(medians(results.final_distance).sel(learning_rate=0.2).min()),
            least=0.1,
            reported="fails for η = 0.2",
        ),
        Finding(
            "the paper's critical learning rate 2 / S_min",
            2 / results.attrs["bound_paper"],
            0.15,
            0.25,
            reported="2 / S_min = 0.2",
        ),
    ]


def sharpness_of_minimisers(results: xr.Dataset, plateau_from: float) -> list[Finding]:
    """Between the lower bound and 2 / learning rate, rising from one to the other."""
    small = results.sel(learning_rate=small_rates(results))
    reached = small.final_sharpness.where(small.final_distance < CONVERGED)
    relative = reached * small.learning_rate / 2
    plateau = medians(relative).sel(learning_rate=0.07, scale=slice(plateau_from - 1e-9, None))
    slowest = medians(reached).isel(learning_rate=0)
    return [
        Finding(
            "sharpness of every minimiser reached, over the lower bound of Theorem 1, at least",
            float((reached / results.attrs["bound_paper"]).min()),
            least=1.0,
            reported="at least S_min",
        ),
        Finding(
            "the same over the stronger bound 2 L A^(1-2/L) |Σ w*|^(2/L)",
            float((reached / results.attrs["bound_stronger"]).min()),
            least=1.0 - 1e-6,
        ),
        Finding(
            "sharpness of every minimiser reached, over 2/η, at most",
            float(relative.max()),
            most=1.02,
            reported="the edge of stability bounds it by 2/η",
        ),
        Finding(
            f"median sharpness over 2/η at learning rate 0.07, scales from {plateau_from:g} on: "
            "the farthest from 1",
            float(abs(plateau - 1).max()),
            most=0.02,
            reported="plateaus at the value 2/η",
        ),
        Finding(
            "median sharpness at the smallest learning rate: its largest over scales, over that "
            "at the smallest scale",
            float(slowest.max() / slowest[0]),
            least=1.5,
            reported="increases with the initialisation scale",
        ),
        Finding(
            "largest start's sharpness over 2/η among runs that reach a minimiser",
            float((small.start_sharpness * small.learning_rate / 2).where(reached > 0).max()),
            least=2.0,
            reported="training is possible while initialising beyond 2/η",
        ),
    ]


def smallest_scale(results: xr.Dataset) -> list[Finding]:
    """The limit of small starts, which does not depend on the learning rate."""
    ends = results.final_sharpness.sel(learning_rate=small_rates(results)).isel(scale=0)
    typical = medians(ends)
    return [
        Finding(
            "median sharpness at the smallest scale: the largest over the smallest of the learning "
            "rates up to 0.07",
            float(typical.max(skipna=False) / typical.min(skipna=False)),
            1.0,
            1.03,
            reported="independent of the learning rate",
        ),
        Finding(
            "the same over that of balanced minimisers, the limit of vanishing scale: the farthest",
            float((typical / results.attrs["balanced_sharpness"]).max()),
            1.0,
            1.15,
            reported="relatively close to S_min",
        ),
        Finding(
            "sharpness of every minimiser at the smallest scale, over the upper bound of "
            "Corollary 3, at most",
            float((ends / results.attrs["bound_upper"]).max()),
            0.0,
            1.0,
            reported="between the bounds of Theorem 1 and Corollary 3",
        ),
    ]


def start_sharpness_ratio(results: xr.Dataset) -> float:
    """The median sharpness of starts of the largest scale over that of the smallest."""
    pooled = results.start_sharpness.median(("learning_rate", "repetition"))
    return float(pooled[-1] / pooled[0])


def divergence(results: xr.Dataset, surely: Sequence[float]) -> list[Finding]:
    """Never at the smallest scale, always at the largest, and more in between."""
    chance = results.diverged.mean("repetition")
    over_scales = chance.mean("scale")
    return [
        Finding(
            "probability of divergence at the smallest scale, the largest of all learning rates",
            float(chance.isel(scale=0).max(skipna=False)),
            0.0,
            0.0,
        ),
        Finding(
            f"probability of divergence at the largest scale, the smallest of learning rates "
            f"{', '.join(f'{rate:g}' for rate in surely)}",
            float(chance.isel(scale=-1).sel(learning_rate=list(surely)).min(skipna=False)),
            0.95,
            1.0,
        ),
        Finding(
            "largest fall of the probability of divergence from one scale to the next",
            0.0 - float(chance.diff("scale").min()),
            most=0.25,  # chance: two standard deviations of the difference of 20 coins
            reported="for large values of the scale it may happen that descent diverges",
        ),
        Finding(
            "smallest rise of the probability of divergence, averaged over scales, from one "
            "learning rate to the next",
            float(over_scales.diff("learning_rate").min()),
            least=-0.05,
        ),
    ]


def exactness(results: xr.Dataset) -> Finding:
    """How good the sharpness is that all of this is about."""
    return Finding(
        "largest error of a sharpness, as a part of the spectral norm",
        float(results.sharpness_error.max()),
        0.0,
        1e-6,
        reported="power iteration, stopped after 20 iterations",
    )
