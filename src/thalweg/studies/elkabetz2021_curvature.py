"""The smallest Hessian eigenvalue on the way, which elkabetz2021 is about and does not plot."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from jaxtyping import Float
from typing_extensions import override

from thalweg._typing import Weights
from thalweg.adversarial import rescaled_saddle
from thalweg.curvature import (
    flow_eigenvalue_bound,
    linear_form,
    region_form,
    smallest_eigenvalue_bounds,
    spectrum_along,
)
from thalweg.dynamics import flow
from thalweg.dynamics.trajectory import Recorded
from thalweg.figures.style import PALETTE, STYLE
from thalweg.network import AbstractNetwork
from thalweg.objective import Objective
from thalweg.studies.elkabetz2021_common import (
    AUTHORS_IMAGES,
    RATE,
    Meter,
    Motion,
    from_start,
    long_descent,
    motion_of,
    problem,
    start,
    stored,
)
from thalweg.studies.elkabetz2021_paths import NEAR_ZERO, Path, paths_of_the_figures
from thalweg.studies.parts import Parts
from thalweg.studies.study import AbstractStudy, Finding, Progress, Size, Variant

_FACTORS = (1e3, 1e4)  # by which layers are rescaled, to see what curvature is elsewhere
_FLOW_ERROR = 1e-3  # of the flow from near zero, as a part of the way that it travels
_lemma = eqx.filter_jit(smallest_eigenvalue_bounds)
_proposition = eqx.filter_jit(flow_eigenvalue_bound)
_linear, _in_region = eqx.filter_jit(linear_form), eqx.filter_jit(region_form)


class Curvature(AbstractStudy):
    """Both ends of the spectrum along the ways of figures 1 and 3, next to the paper's bounds."""

    name: ClassVar[str] = "elkabetz2021-curvature"
    title: ClassVar[str] = "the smallest Hessian eigenvalue along the way, against its bounds"
    figures: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ("mnist",)
    variants: ClassVar[Mapping[str, Variant]] = {"code": AUTHORS_IMAGES}
    protocol: ClassVar[str] = """
The ways of figures 1 and 3 again, at eta_0 = 0.001 for 10,000 iterations on 1000 MNIST images:
the linear and the ReLU network 784-50-50-10 and the adapted convolutional network, from Xavier
starts. Proposition 8 speaks only of flows from a start of norm 1 / (2 N) at most, far below a
Xavier start's, so a fourth way is the linear network's flow from the same start shrunk to norm
1/6. At 21 points of each way both ends of the Hessian's spectrum are found from products with
vectors in double precision, to 1e-4 of its norm, and the paper's bounds are evaluated: lemma 7,
11 or 23 as printed, a sharper form of it under the same assumptions, and proposition 8, 12 or 24
with the norm of the start as its eps. Propositions 12 and 24 are about flows; on descent's ways
they are looked at all the same.

To see what curvature is at other points, the last weights are rescaled as in propositions 6, 10
and 22, by a factor of 1e3 and of 1e4 (first two layers divided by its square, third multiplied by
it), and the curvature along the direction of those proofs is taken.
"""
    comparison: ClassVar[str] = """
The paper plots none of this; what it says in words can be looked at here.

* **"The minimal eigenvalue along them is far greater than in arbitrary points in space".** The
  least lambda_min on the four ways is -9.5, -0.84, -3.5 and -2.3. At rescaled weights the
  curvature is in proportion to the factor, so that it has no lower bound; at 1e4 it is 140, 14,600,
  290 and 6,700 times the least one on the way.
* **"particularly towards convergence".** From Xavier starts lambda_min rises to 0.5 % (linear),
  1.9 % (ReLU) and 4 % (adapted) of its least value by the end, along with the loss. The adapted
  network first stays near its start, and is most curved at time 1, when it leaves it. At its end
  lambda_min is known to 0.015 only, a sixth of itself.
* **Roughly convex, near zero.** The flow from norm 1/6 leaves the saddle at the origin at time 48,
  where lambda_min is -0.84, fourteen times what it was at the start, and rises to -0.09 at time 68.
  By time 80 the loss is only 0.78, and lambda_min falls again: another saddle is being left.
  Convergence is not seen here.
* **The bounds.** Lemma 7 as printed is 7 to 15 times too large at Xavier starts; its sharper form
  is off by less than a factor of 2 there, and is nearly attained (0.98) when the flow from near
  zero leaves the origin. Proposition 8, which knows no more than how far the start is from zero, is
  38 times too large at best. Lemma 11 for ReLU is 150 times too large at best, and its sharper form
  28 times. Lemma 23 for the convolutional network is 1.7 million times too large at best, its
  sharper form 4,700 times: it bounds a convolution by a norm that counts its positions.
* **Propositions 12 and 24** are weaker than the lemmas here, for the norm of a Xavier start, 12.6
  and 17.6, takes the place of what should be near zero.
* **Time.** The run was interrupted; the time above is that of its last part alone, most of the
  convolutional network's eigenvalues.
"""

    images: int
    iterations: int
    points: int
    piece: int
    time_from_zero: float
    tolerance: float = 1e-4
    choice: str = "random"
    seed: int = 1

    @classmethod
    @override
    def of_size(cls, size: Size) -> "Curvature":
        if size is Size.QUICK:
            return cls(40, 80, 2, 1000, 2.0, 1e-3)
        return cls(1000, 10_000, 21, 500, 80.0)

    @override
    def compute(self, parts: Parts, progress: Progress) -> xr.Dataset:
        paths = paths_of_the_figures()
        meter = Meter(progress, sum(path.cost for path in paths.values()) * 2 * self.points)
        found: list[xr.Dataset] = []
        for name, path in paths.items():
            label = _label(name)
            way = self._way(parts, name, path)
            meter.add(f"{name}: the way", path.cost * self.points)
            pieces: list[xr.Dataset] = []
            for first in range(0, self.points, path.piece):
                here = tuple(array[first : first + path.piece] for array in way.weights)
                measured = partial(self._measured, path, here)
                pieces.append(parts.get(f"{label}-spectrum-{first}", measured))
                meter.add(f"{name}: spectrum", path.cost * pieces[-1].sizes["point"])
            radius = float(
                np.sqrt(sum(np.sum(array[0].astype(float) ** 2) for array in way.weights))
            )
            own = xr.concat(pieces, "point").assign(
                loss=("point", way.loss),
                proposition=("point", self._along_flow(path, way.weights, radius)),
                start_norm=radius,
                elsewhere=(
                    "factor",
                    [self._elsewhere(path, way.weights, each) for each in _FACTORS],
                ),
                time=("point", self._times(name)),
            )
            found.append(own.assign_coords(path=name, factor=list(_FACTORS)))
        flow_error = self._near_zero_error(parts, paths[NEAR_ZERO])
        return xr.concat(found, "path").assign(flow_error=flow_error)

    def _objective(self, network: AbstractNetwork, dtype: str) -> Objective:
        return Objective(network, problem(self.images, self.choice, dtype))

    def _times(self, name: str) -> Float[np.ndarray, " points"]:
        last = self.time_from_zero if name == NEAR_ZERO else RATE * self.iterations
        return np.linspace(0, last, self.points)

    def _way(self, parts: Parts, name: str, path: Path) -> Motion:
        """Descent at eta_0 from the start of figures 1 and 3, or a flow from near zero."""
        if name == NEAR_ZERO:
            return motion_of(self._near_zero(parts, path))
        return long_descent(
            parts,
            _label(name),
            self._objective(path.fast, "float32"),
            start(path.fast, self.seed, "xavier", "float32"),
            divisor=1,
            iterations=self.iterations,
            record_every=self.iterations // (self.points - 1),
            piece=self.piece,
            note=lambda steps: None,
        )

    def _near_zero(self, parts: Parts, path: Path) -> xr.Dataset:
        return parts.get(_label(NEAR_ZERO), lambda: self._flow_from_near_zero(path))

    def _flow_from_near_zero(self, path: Path) -> xr.Dataset:
        """The flow from as far from zero as proposition 8 allows: 1 / (2 N)."""
        weights = start(path.network, self.seed, "xavier", "float64")
        norm = jnp.sqrt(sum(jnp.sum(array**2) for array in weights))
        # A hair inside, so that rounding does not decide.
        factor = (1 - 1e-12) / (2 * path.network.depth * norm)
        near = tuple(factor * array for array in weights)
        objective = self._objective(path.network, "float64")
        exact = flow(objective, near, times=self._times(NEAR_ZERO), rtol=1e-6, atol=1e-8)
        return stored(Motion(exact.weights, exact.loss)).assign(error=("record", exact.error))

    def _near_zero_error(self, parts: Parts, path: Path) -> float:
        """How far the flow from near zero may be off, as a part of the way that it travels."""
        kept = self._near_zero(parts, path)
        return float((kept.error / from_start(motion_of(kept).weights).max()).max(skipna=False))

    def _measured(self, path: Path, here: Recorded) -> xr.Dataset:
        here = tuple(array.astype(float) for array in here)
        spectrum = spectrum_along(
            self._objective(path.fast, "float64"), here, tolerance=self.tolerance
        )
        objective = self._objective(path.network, "float64")
        bounds = [_lemma(objective, point) for point in _points(here)]
        return xr.Dataset(
            {
                "smallest": ("point", spectrum.smallest),
                "error": ("point", spectrum.smallest_error),
                "largest": ("point", spectrum.largest),
                "lemma": ("point", [float(bound.paper) for bound in bounds]),
                "sharper": ("point", [float(bound.sharper) for bound in bounds]),
            }
        )

    def _along_flow(
        self, path: Path, weights: Recorded, radius: float
    ) -> Float[np.ndarray, " points"]:
        if not path.proposition:
            return np.full(len(weights[0]), np.nan)
        objective = self._objective(path.network, "float64")
        eps = jnp.asarray(radius)
        return np.array([float(_proposition(objective, at, eps)) for at in _points(weights)])

    def _elsewhere(self, path: Path, weights: Recorded, factor: float) -> float:
        """The curvature along one direction, at the last weights with their layers rescaled."""
        objective = self._objective(path.network, "float64")
        last = tuple(jnp.asarray(array[-1], float) for array in weights)
        at, direction = rescaled_saddle(path.network, objective.problem, last, factor)
        form = _in_region if path.network.linear is None else _linear
        length = sum(jnp.sum(jnp.asarray(array) ** 2) for array in direction)
        return float(form(objective, at, direction) / length)

    @override
    def findings(self, results: xr.Dataset) -> list[Finding]:
        found = []
        for name, path in paths_of_the_figures().items():
            own = results.sel(path=name)
            bounds = {path.lemma: own.lemma, f"{path.lemma}, sharper": own.sharper}
            if path.proposition:
                bounds[path.proposition] = own.proposition
            # An eigenvalue is known up to its error, on the side on which it would violate.
            low = own.smallest - own.error
            found += [
                Finding(
                    f"{name}: largest part of the bound of {label} that lambda_min takes up",
                    float((low / bound).max(skipna=False)),
                    0.0,
                    1.0,
                    "a lower bound",
                )
                for label, bound in bounds.items()
            ]
            found += self._on_the_way(name, own)
        found.append(
            Finding(
                f"{NEAR_ZERO}: error of the computed flow over the way that it travels",
                float(results.flow_error),
                0.0,
                _FLOW_ERROR,
            )
        )
        return found

    def _on_the_way(self, name: str, own: xr.Dataset) -> list[Finding]:
        lowest = float(own.smallest.min(skipna=False))
        few, many = own.elsewhere.values
        found = [
            # It is negative and grows in proportion to the factor, so without bound.
            Finding(
                f"{name}: curvature at weights rescaled by 1e4 over that at 1e3",
                float(many / few) if many < 0 else np.nan,
                9.5,
                10.5,
                "can in general be arbitrarily negative",
            )
        ]
        if self.iterations >= 10_000:
            found.append(
                Finding(
                    f"{name}: lambda_min at the end over the least on the way",
                    float(own.smallest[-1]) / lowest,
                    0.0,
                    0.5,
                    "particularly towards convergence",
                )
            )
        return found

    @override
    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        with plt.rc_context(STYLE):
            return {"curvature": _draw(results)}


def _label(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


def _points(weights: Recorded) -> Iterator[Weights]:
    for index in range(len(weights[0])):
        yield tuple(jnp.asarray(array[index], float) for array in weights)


def _draw(results: xr.Dataset) -> Any:
    paths = paths_of_the_figures()
    figure, axes = plt.subplots(
        2, len(paths), figsize=(12, 5.6), layout="constrained", sharex="col"
    )
    for place, (name, path) in enumerate(paths.items()):
        own = results.sel(path=name)
        upper, lower = axes[:, place]
        upper.axhline(0, color="0.8", linewidth=0.8)
        upper.plot(own.time, own.smallest, color="black", marker=".", markersize=4)
        upper.set_title(name)
        lines = {
            path.lemma: (own.lemma, PALETTE[3], "-"),
            f"{path.lemma}, sharper": (own.sharper, PALETTE[2], "-"),
            path.proposition: (own.proposition, PALETTE[0], "--"),
        }
        lower.plot(own.time, -own.smallest, color="black", label=r"$-\lambda_{\min}$")
        for label, (bound, colour, style) in lines.items():
            if label:
                lower.plot(own.time, -bound, color=colour, linestyle=style, label=label)
        lower.set_yscale("log")
        lower.set_xlabel("time")
        lower.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    axes[0, 0].set_ylabel(r"$\lambda_{\min}$ of the Hessian")
    axes[1, 0].set_ylabel(r"$-\lambda_{\min}$ and minus its bounds")
    return figure
