"""What one server shows: an experiment, or an objective that was given in Python."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thalweg._errors import InputError
from thalweg._typing import AnyWeights
from thalweg.data.table import from_csv, read_header
from thalweg.experiment import Experiment
from thalweg.experiment.data_settings import CsvData
from thalweg.explorer.computation import Computation
from thalweg.explorer.settings import SettingError, path_of, read_setting, values_of
from thalweg.explorer.uploads import Uploads
from thalweg.objective import AbstractObjective

_OWN_TABLES = ("title", "training", "flow", "curvature")


@dataclass(frozen=True)
class Session:
    """What is shown first, and what every computation is made of.

    Attributes:
        first: the setting to begin with.
        folder: where its paths start.
        own: an objective and a start; then a setting is about training alone.
        uploads: tables that were dropped on the page.
    """

    first: Experiment = field(default_factory=Experiment)
    folder: Path = field(default_factory=Path)
    own: tuple[AbstractObjective, AnyWeights] | None = None
    uploads: Uploads = field(default_factory=Uploads)

    def first_values(self) -> dict[str, Any]:
        """The setting to begin with, as JSON."""
        return self._known(values_of(self.first))

    def computation(self, values: dict[str, Any]) -> Computation:
        """Begin with a setting, or say what is wrong with it."""
        if self.own is not None:
            for name in values:
                if name not in _OWN_TABLES:
                    raise SettingError(
                        f"A setting of one's own objective must have no table `{name}`; it may "
                        f"have {', '.join(_OWN_TABLES)}.",
                        name,
                    )
        experiment = read_setting(values)
        return Computation(experiment, self._folder_of(experiment), self.own)

    def limits(self) -> dict[str, Any]:
        """Ends of sliders that are wider than usual, so that the first setting lies between."""
        rates = self.first.training.learning_rate
        return {"learning_rate": [min(1e-4, *rates), max(2.0, *rates)]}

    def table(self) -> dict[str, Any] | None:
        """The table of the first setting, if it has one that can be read."""
        data = self.first.data
        if not isinstance(data, CsvData):
            return None
        place = self.folder / data.path
        try:
            header, found = read_header(place), from_csv(place, data.target)
        except InputError:  # which is said where it is trained on
            return None
        return {
            "name": data.path,
            "columns": list(header),
            "rows": int(found.x.shape[0]),
            "target": data.target[0],
        }

    def _folder_of(self, experiment: Experiment) -> Path:
        """Where a setting's table is: a page can name only what it has been given."""
        path = path_of(experiment)
        if path is not None and path in self.uploads:
            return self.uploads.folder
        if path is not None and path != path_of(self.first):
            raise SettingError(
                "`data.path` must be the name of a table that was dropped on the page, got "
                f"{path!r}; drop it again.",
                "data.path",
            )
        return self.folder

    def _known(self, values: dict[str, Any]) -> dict[str, Any]:
        if self.own is None:
            return values
        return {name: value for name, value in values.items() if name in _OWN_TABLES}
