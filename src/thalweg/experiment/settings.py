"""What an experiment is: data, network, start, training, and what is measured; all validated.

`Experiment` is the same object in Python and in a TOML file: a table per part, every field with a
default. Each description below is also the comment that `thalweg init` writes beside the field.
"""

from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from thalweg.experiment.data_settings import (
    Count,
    Data,
    GaussianData,
    ImageData,
    Many,
    NotNegative,
    Positive,
    Seed,
    Settings,
    TargetData,
    gaussian_by_default,
    one_or_many,
)


class NetworkSettings(Settings):
    """How the map is made of layers."""

    kind: Literal["linear", "homogeneous"] = "linear"
    """linear, or homogeneous: fully connected with a (leaky-)ReLU activation"""
    depth: Count | None = None
    """how many layers; 10 if neither this nor `hidden` is given"""
    width: Count | None = None
    """width of all hidden layers; as many as there are inputs if not given"""
    hidden: Annotated[tuple[Count, ...], Many] | None = None
    """widths of the hidden layers one by one, instead of `depth` and `width`"""
    slopes: Annotated[tuple[float, float], Many] = (1.0, 0.0)
    """slopes of the activation above and below zero; (1, 0) is ReLU"""
    readout: bool = False
    """square layers, then a fixed random unit vector that brings them to one output"""
    seed: Seed = 0
    """random seed of the readout"""

    @model_validator(mode="after")
    def _one_description(self) -> "NetworkSettings":
        if self.hidden is not None and (self.depth is not None or self.width is not None):
            raise ValueError("must give either `hidden` or `depth` and `width`, not both")
        if self.readout and self.kind != "linear":
            raise ValueError("must have no `readout` unless its `kind` is linear")
        return self


class LossSettings(Settings):
    """What is minimised."""

    kind: Literal["auto", "square", "cross_entropy", "logistic", "exponential"] = "auto"
    """square for real targets and cross_entropy for labels, if auto"""
    scale: Positive = 1.0
    """factor of the mean square: 1 in marion2024, 0.5 in the others; not for labels or targets"""
    weight_decay: NotNegative = 0.0
    """adds this times half the squared norm of the weights"""


class DrawnStart(Settings):
    """Weights drawn at random."""

    kind: Literal["gaussian", "balanced", "residual"] = "gaussian"
    """gaussian entries; balanced layers of a gaussian product; residual: near the identity"""
    scale: NotNegative = 0.3
    """deviation of what is drawn"""
    zero_last_layer: bool = False
    """set the last layer to zero"""
    seed: Seed = 0
    """random seed of the initialisation"""


class CommonStart(Settings):
    """Weights drawn as libraries do by default."""

    kind: Literal["xavier_uniform", "pytorch_default"]
    """uniform by both widths of a layer, or by its inputs alone"""
    seed: Seed = 0
    """random seed of the initialisation"""


class AlignedStart(Settings):
    """Balanced layers of one output, at an angle to the solution."""

    kind: Literal["aligned"]
    """which kind of start this is"""
    norm: Positive = 0.1
    """norm of the product of all layers"""
    cosine: Annotated[float, Field(ge=-1, le=1)] = 0.3
    """cosine of the angle between that product and the solution"""


class RegisteredStart(Settings):
    """Weights drawn from a distribution of one's own, `tw.initialisation.register(name, draw)`."""

    kind: Literal["registered"]
    """a distribution that was registered in Python"""
    name: str
    """the name that it was registered under"""
    scale: NotNegative = 0.3
    """what is given to it as the scale"""
    seed: Seed = 0
    """random seed of the weights"""


class UnbalancedStart(Settings):
    """The first entry of each layer carries a product of its own, out of balance; all else is I."""

    kind: Literal["unbalanced"]
    """which kind of start this is: that of arora2019:claim4, from which descent can diverge"""
    product: Positive = 0.75
    """the first entry c of the product; with N layers those of the layers are around c^(1/N)"""
    factor: Annotated[float, Field(ge=1)] = 1.0
    """first half of the layers times this, second half divided by it; 1 is balanced"""


class IdentityStart(Settings):
    """Every layer is the identity."""

    kind: Literal["identity"]
    """which kind of start this is"""


Start = Annotated[
    DrawnStart | CommonStart | AlignedStart | UnbalancedStart | IdentityStart | RegisteredStart,
    Field(discriminator="kind"),
    gaussian_by_default("kind"),
]


# --- what is done --------------------------------------------------------------------------------


class Training(Settings):
    """Gradient descent."""

    learning_rate: Annotated[
        tuple[Positive, ...], BeforeValidator(one_or_many), Field(min_length=1)
    ] = (0.02, 0.05, 0.1, 0.2)
    """one, or a list: each is a run from the same start"""
    time: Positive | None = None
    """learning rate x steps, the same for all runs; 16 if neither this nor `steps` is given"""
    steps: Count | None = None
    """how many steps, instead of `time`"""
    records: Count = 160
    """how many times along a run it is recorded, at most"""

    @model_validator(mode="after")
    def _one_length(self) -> "Training":
        if len(set(self.learning_rate)) < len(self.learning_rate):
            raise ValueError(
                f"must have different values in `learning_rate`, got {list(self.learning_rate)}"
            )
        if self.time is not None and self.steps is not None:
            raise ValueError("must give either `time` or `steps`, not both")
        steps = self.steps or self.horizon / min(self.learning_rate)
        if not isfinite(self.horizon) or not steps < 2**63:
            raise ValueError(
                f"must have a finite `time` of fewer than 2^63 steps, got {self.horizon:g} for a "
                f"`learning_rate` of {min(self.learning_rate):g}"
            )
        if self.steps is None and self.horizon < max(self.learning_rate):
            raise ValueError(
                f"must have a `time` of at least one step, got {self.horizon:g} for a "
                f"`learning_rate` of {max(self.learning_rate):g}"
            )
        return self

    @property
    def horizon(self) -> float:
        """How long the longest run is, in time."""
        if self.steps is not None:
            return self.steps * max(self.learning_rate)
        return 16.0 if self.time is None else self.time

    def steps_at(self, rate: float) -> int:
        """How many steps a run with this learning rate takes."""
        if self.steps is not None:
            return self.steps
        return int(min(self.horizon / rate + 1e-9, 2.0**62))  # a tiny rate is refused where it runs

    def record_every(self, rate: float) -> int:
        """How many steps lie between two records."""
        return spacing(self.steps_at(rate), self.records)


def spacing(steps: int, records: int) -> int:
    """Steps between records: an odd number, so that an oscillation is seen on both its sides."""
    return -(-steps // records) | 1


class FlowSettings(Settings):
    """The gradient flow from the same start, and the proof of its distance."""

    enabled: bool = True
    """integrate the flow"""
    validated: bool = True
    """prove how far the flow is off, where that can be done: for linear networks, to the end"""
    rtol: Annotated[float, Field(ge=1e-12, lt=1)] = 1e-8
    """relative tolerance, where the flow is not validated"""
    atol: Positive = 1e-10
    """absolute tolerance, likewise"""
    solver: Literal["auto", "explicit", "collocation", "chebyshev", "filippov"] = "auto"
    """how it is integrated, likewise; auto chooses by stiffness, size and smoothness"""
    tube: Literal["auto", "exact", "norms", "off"] = "auto"
    """prove the distance from each run alone, likewise: by exact eigenvalues, by norms, or not"""


class CurvatureSettings(Settings):
    """Both ends of the Hessian's spectrum along every run."""

    enabled: bool = True
    """measure them"""
    tolerance: Positive = 1e-6
    """error asked for, as a part of the spectral norm"""
    records: Count | None = None
    """at how many records of a run; all, or 20 above 4000 weights, if not given"""


class CertificateSettings(Settings):
    """Which published guarantees hold here."""

    enabled: bool = True
    """check them"""
    target_loss: float | None = None
    """loss to be reached; what leaves a hundredth of the start's excess if not given"""
    radius: Positive = 0.01
    """how near descent is to stay to the flow"""


class Output(Settings):
    """Where results go."""

    folder: str = "thalweg-run"
    """folder of the report; from where the command is called, if it is not absolute"""


class SweepSettings(Settings):
    """What is kept of every run of a sweep; its grids are the tables [[sweep]]."""

    records: Count = 64
    """how many times along a run its loss is recorded, at most"""
    spectrum_at_records: bool = False
    """measure both ends of the spectrum at every record, not only at the start and the end"""


Grid = dict[str, Any]
"""The values of each field, as they are written; `grid` reads them."""


class Experiment(Settings):
    """All of an experiment. Without any settings: the set-up of marion2024, depth 10."""

    title: str = ""
    """what the report is called"""
    data: Data = Field(default_factory=GaussianData)
    network: NetworkSettings = Field(default_factory=NetworkSettings)
    loss: LossSettings = Field(default_factory=LossSettings)
    start: Start = Field(default_factory=DrawnStart)
    training: Training = Field(default_factory=Training)
    flow: FlowSettings = Field(default_factory=FlowSettings)
    curvature: CurvatureSettings = Field(default_factory=CurvatureSettings)
    certificates: CertificateSettings = Field(default_factory=CertificateSettings)
    output: Output = Field(default_factory=Output)
    sweeping: SweepSettings = Field(default_factory=SweepSettings)
    sweep: Annotated[tuple[Grid, ...], Many] = ()
    """grids of values, one table [[sweep]] per grid"""

    @model_validator(mode="after")
    def _fits_together(self) -> "Experiment":
        kind, network = self.start.kind, self.network
        classes = self.data.classes if isinstance(self.data, ImageData) else None
        if kind == "residual" and (network.kind != "linear" or not network.readout):
            raise ValueError(
                "a residual `start` needs a linear network with `network.readout = true`"
            )
        if kind in ("balanced", "aligned", "unbalanced") and network.kind != "linear":
            raise ValueError(
                f'the {kind} `start` needs a linear network; set network.kind = "linear"'
            )
        if classes is None and self.loss.kind not in ("auto", "square"):
            raise ValueError(
                f"the {self.loss.kind} `loss` needs labels, but `data` has real targets; "
                'set loss.kind = "square"'
            )
        if classes not in (None, 2) and self.loss.kind in ("logistic", "exponential"):
            raise ValueError(
                f"the {self.loss.kind} `loss` needs two classes, but `data` has {classes}; "
                "name two digits in `data.only`"
            )
        if isinstance(self.data, TargetData) and self.network.kind != "linear":
            raise ValueError(
                'the "target" `data` need a linear network; set network.kind = "linear"'
            )
        return self
