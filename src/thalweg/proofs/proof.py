"""What a proof file holds, as arrays; reading, writing and checking it."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._shown import shown

Numbers = Float[np.ndarray, " _"]


@shown
@dataclass(frozen=True)
class ProvenRun:
    """What is proven of one run of descent.

    Attributes:
        learning_rate: of the run.
        times: learning rate x step, for every step.
        lower: the distance from the run to the exact flow is at least this.
        upper: it is at most this.
    """

    learning_rate: float
    times: Numbers
    lower: Numbers
    upper: Numbers


@shown
@dataclass(frozen=True)
class Proof:
    """A proof of where the exact flow is, seen from runs of descent, ready to be written.

    Attributes:
        content: what the file holds; numbers are hexadecimal strings.
        failed_at: the time from which on nothing is proven of the runs that go on; None if there is
            none. It is not part of the file.
    """

    content: dict[str, Any]
    failed_at: float | None = None
    level: ClassVar[str] = "rigorous"

    @property
    def times(self) -> Numbers:
        """The partition of time."""
        return _array(self.content["times"])

    @property
    def radius(self) -> Numbers:
        """Before each of those times, the exact flow is within this of the checker's curve."""
        return _array(self.content["radii"])

    @property
    def runs(self) -> tuple[ProvenRun, ...]:
        """What is proven of each run."""
        return tuple(map(_proven, self.content["runs"]))

    def write(self, path: str | Path) -> None:
        """Write the file that `thalweg check`, or checker.py alone, checks."""
        from thalweg.storage.files import write_text  # brings xarray, which `import thalweg` spares

        signed = {**self.content, "sha256": checker().digest(self.content)}
        write_text(Path(path), json.dumps(signed, separators=(",", ":")) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> "Proof":
        """Read a file, whose form is checked here, and its mathematics only by `check`."""
        module, raw = checker(), Path(path).read_bytes()
        try:
            module.parse(raw)
        except module.Rejected as refusal:
            raise InputError(f"{path} holds no proof: {refusal}") from refusal
        content = json.loads(raw)
        del content["sha256"]
        return cls(content)


@checked
def check(path: str | Path) -> Any:
    """The checker's verdict on a file: `accepted`, `reason`, and what is proven; see `checker`."""
    try:
        return checker().check(path)
    except OSError as error:
        raise InputError(
            f"The proof must be a file that can be read, got {path}: {error.strerror}."
        ) from error


def checker() -> ModuleType:
    """The checker, which alone needs python-flint."""
    try:
        from thalweg.proofs import checker
    except ImportError as error:
        raise InputError(
            "Proofs need python-flint, which is not there; `pip install python-flint` brings it."
        ) from error
    return checker


def _proven(run: dict[str, Any]) -> ProvenRun:
    rate, upper = float.fromhex(run["learning_rate"]), _array(run["upper"])
    return ProvenRun(rate, rate * np.arange(upper.size), _array(run["lower"]), upper)


def _array(numbers: list[str]) -> Numbers:
    return np.array([float.fromhex(number) for number in numbers])
