"""What a quantity is: what it is called, how it is computed, and how it is stored and shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

from thalweg._arguments import checked_class
from thalweg._errors import InputError

NEVER = -1
"""What `diverged_at` is where the loss stayed finite."""

NO_RUN = -2
"""What `diverged_at` and `phase` are where a grid has no run."""

Function = Callable[[Any], Any]
"""Of the weights of one network: one number, in JAX."""

Measure = Callable[[Any], Function | None]
"""What gives the function for an objective, or None where the quantity makes no sense for it."""


@checked_class
@dataclass(frozen=True)
class Quantity:
    """One thing that is measured or stored. All are pure numbers: weights have no units.

    Args:
        name: the variable, a Python identifier.
        long_name: what it is, as a phrase.
        symbol: as figures write it, in mathtext; empty where there is none.
        formula: its definition in plain text.
        heading: what stands above a figure of it, in a few words; the long name if not given.
        label: what an axis says in front of the symbol.
        caption: what a reader should know who sees it drawn, in whole sentences.
        measure: takes an objective and gives the function of the weights that is measured along
            trajectories, or None where the quantity makes no sense there.
        stacked: the same for many networks at once, which are on the first axis of every layer, in
            NumPy; trajectories are measured by it where there is one, and nothing is compiled.
        logarithmic: whether it is drawn in powers of ten.
        limits: between which numbers it always lies, which a figure then shows.
        missing: the value where a grid has no run.
        dtype: how it is stored.
        flags: what some of its values mean.
        comment: what else must be known about stored values.
    """

    name: str
    long_name: str
    symbol: str = ""
    formula: str = ""
    heading: str = ""
    label: str = ""
    caption: str = ""
    measure: Measure | None = None
    stacked: Measure | None = None
    logarithmic: bool = False
    limits: tuple[float, float] | None = None
    missing: float | int = nan
    dtype: str = "float64"
    flags: Mapping[int, str] = field(default_factory=dict)
    comment: str = ""

    def __post_init__(self):
        if not self.name.isidentifier():
            raise InputError(
                f"`name` must be one that Python allows for a variable, got {self.name!r}: the "
                "stored array has it."
            )
        if not self.long_name:
            raise InputError(f"`long_name` must say what {self.name} is, got an empty text.")

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of a variable that holds it, after the CF conventions."""
        found: dict[str, Any] = {"long_name": self.long_name, "units": "1"}
        if self.flags:
            found["flag_values"] = list(self.flags)
            found["flag_meanings"] = " ".join(w.replace(" ", "_") for w in self.flags.values())
        return found | ({"comment": self.comment} if self.comment else {})

    @property
    def title(self) -> str:
        """What stands above a figure of it."""
        said = self.heading or self.long_name
        return said[:1].upper() + said[1:]

    @property
    def axis_label(self) -> str:
        """What stands beside the axis of a figure."""
        return "  ".join(filter(None, (self.label, self.symbol))) or self.long_name

    def variant(self, prefix: str, where: str) -> "Quantity":
        """The same quantity at another place, under a name of its own."""
        return replace(
            self,
            name=f"{prefix}_{self.name}",
            long_name=f"{self.long_name}, {where}",
            measure=None,
            stacked=None,
        )


QUANTITIES: dict[str, Quantity] = {}
"""All of them, by name; `thalweg.quantities` fills it, and stores look into it."""


def stored_as(name: str) -> Quantity:
    """How a variable is stored: as the registry says, or as plain numbers if it is not in it."""
    return QUANTITIES.get(name, _PLAIN)


def attributes_of(name: str) -> dict[str, Any]:
    """The attributes of a variable; none for one that is not in the registry."""
    return QUANTITIES[name].attrs if name in QUANTITIES else {}


_PLAIN = Quantity("unregistered", "a number that is not in the registry")
