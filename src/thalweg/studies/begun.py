"""What a study notes in its folder while it is being done: which it is, and how long it took."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from thalweg.storage.contents import Begun
from thalweg.storage.files import writing_to
from thalweg.storage.sealed import read_record, write_record
from thalweg.storage.sums import DamageError
from thalweg.studies.parts import Parts

_NOTE = "study.json"


@dataclass(frozen=True)
class Note:
    """A study that was begun.

    Attributes:
        study: its name.
        size: how much of it is done.
        variants: what is done otherwise.
        settings: all that its data depend on.
        seconds: how long it took so far, also in processes that were killed.
    """

    study: str
    size: str
    variants: Sequence[str]
    settings: str
    seconds: float = 0.0

    @property
    def command(self) -> str:
        """What reproduces it."""
        words = ["thalweg reproduce", self.study, f"--{self.size}"]
        return " ".join([*words, *(f"--variant {name}" for name in self.variants)])

    def resumed(self, folder: Path) -> "Note":
        """The note with the seconds of what was done before, if that is of the same settings."""
        try:
            before = read_note(folder)
        except DamageError:  # only how long it took is lost
            before = None
        same = before is not None and before.settings == self.settings
        return replace(self, seconds=before.seconds) if before is not None and same else self

    def write(self, folder: Path) -> None:
        """Put it in place of an earlier one."""
        with writing_to(folder):
            write_record(folder / _NOTE, asdict(self))


def read_note(folder: Path) -> Note | None:
    """The note in a folder, if there is one."""
    if not (folder / _NOTE).is_file():
        return None
    try:
        return Note(**read_record(folder / _NOTE))
    except TypeError as error:
        raise DamageError(f"{_NOTE} is not what was written") from error


def forget_note(folder: Path) -> None:
    """Its seconds are in the results now; those of another run would be added to them."""
    (folder / _NOTE).unlink(missing_ok=True)


def begun_in(folder: Path) -> Begun | None:
    """The study in a folder that did not come to its end, if there is one."""
    try:
        note = read_note(folder)
    except DamageError as error:
        raise DamageError(
            f"The study in {folder} is unfinished and must say which one it is, but {error}; its "
            "`thalweg reproduce` continues it."
        ) from error
    if note is None:
        return None
    kept = Parts(folder, note.settings).checked()
    what, goes_on = f"The study {note.study} in {folder}", f"`{note.command}` continues"
    return Begun(what, len(kept.whole), kept.damaged, goes_on)
