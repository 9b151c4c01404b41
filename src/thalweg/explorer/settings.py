"""What a page may set: the tables of an experiment that concern what is seen, within limits.

A setting is the same thing as an experiment file, is validated by the same classes, and is refused
in the same sentences. The limits are those of a page that answers at once; beyond them there is
`thalweg run`.
"""

from collections.abc import Mapping
from typing import Any

from thalweg._errors import InputError
from thalweg.experiment import Experiment, from_values
from thalweg.experiment.data_settings import CsvData, ImageData
from thalweg.experiment.files import field_description, field_names

TABLES = (
    "title", "data", "network", "loss", "start", "training", "flow", "curvature", "certificates",
)  # fmt: skip
MOST_STEPS, MOST_RECORDS, MOST_RATES = 20_000, 400, 4
DEEPEST, WIDEST = 64, 64
MOST_FEATURES, MOST_NUMBERS, MOST_WEIGHTS = 1000, 10**7, DEEPEST * WIDEST**2

LIMITS: dict[str, Any] = {
    "depth": [1, 40],
    "width": [1, 10],
    "scale": [0.0, 2.0],
    "learning_rate": [1e-4, 2.0],
    "time": [0.5, 64.0],
    "steps": MOST_STEPS,
    "records": MOST_RECORDS,
    "rates": MOST_RATES,
    "deepest": DEEPEST,
    "widest": WIDEST,
}
"""The ends of sliders, and what a setting may ask for at most."""


class SettingError(InputError):
    """A setting that cannot be shown, with the field that is at fault where it is known."""

    def __init__(self, sentence: str, field: str | None = None):
        super().__init__(sentence)
        self.field = field


def read_setting(values: Mapping[str, Any]) -> Experiment:
    """The experiment of a setting, or one sentence on what is wrong with it."""
    for name in values:
        if name not in TABLES:
            raise SettingError(
                f"A setting must have no table `{name}`; it may have {', '.join(TABLES)}.", name
            )
    try:
        found = from_values(values, "The setting")
    except InputError as error:
        raise SettingError(str(error), _field_in(str(error))) from error
    require_small(found)
    return found


def require_small(experiment: Experiment) -> None:
    """Refuse what a page cannot show at once."""
    training, network = experiment.training, experiment.network
    wide = max(network.hidden or (network.width or 1,))
    for name, got, most in (
        ("training.learning_rate", len(training.learning_rate), MOST_RATES),
        ("training.records", training.records, MOST_RECORDS),
        ("network.depth", network.depth or len(network.hidden or ()) + 1, DEEPEST),
        ("network.width", wide, WIDEST),
        ("data.features", getattr(experiment.data, "features", 1), MOST_FEATURES),
        ("data.outputs", getattr(experiment.data, "outputs", 1), MOST_FEATURES),
        ("data.samples", _samples(experiment), MOST_NUMBERS // _columns(experiment)),
    ):
        if got > most:
            what = "values of" if name.endswith("rate") else "for"
            raise SettingError(
                f"The explorer takes at most {most} {what} `{name}`, got {got}; `thalweg run` "
                "takes more.",
                name,
            )
    for rate in training.learning_rate:
        if training.steps_at(rate) > MOST_STEPS:
            raise SettingError(
                f"The explorer takes at most {MOST_STEPS} steps, got {training.steps_at(rate)} at "
                f"`training.learning_rate` {rate:g}; take a larger one, or a shorter "
                "`training.time`.",
                "training.time",
            )
    if isinstance(experiment.data, ImageData) and experiment.data.source == "mnist":
        raise SettingError(
            'The explorer takes small data, got data.source = "mnist"; `thalweg run` takes it.',
            "data.source",
        )


def _samples(experiment: Experiment) -> int:
    """How many are drawn; sets of images are small enough."""
    return getattr(experiment.data, "samples", None) or 1


def _columns(experiment: Experiment) -> int:
    return getattr(experiment.data, "features", 1) + getattr(experiment.data, "outputs", 1)


def require_few_weights(count: int) -> None:
    """Refuse a network that is wide because its data are."""
    if count > MOST_WEIGHTS:
        raise SettingError(
            f"The explorer takes networks of at most {MOST_WEIGHTS:,} weights, got {count:,}; "
            "lower `network.width`, or take `thalweg run`.",
            "network.width",
        )


def values_of(experiment: Experiment) -> dict[str, Any]:
    """A setting as JSON, with every field that has a value."""
    return experiment.model_dump(mode="json", exclude_none=True, include=set(TABLES))


def shown_first(experiment: Experiment) -> Experiment:
    """An experiment file as a setting: what the page takes no part in is left out."""
    return read_setting(values_of(experiment))


def path_of(experiment: Experiment) -> str | None:
    """The table that a setting reads, if it reads one."""
    return experiment.data.path if isinstance(experiment.data, CsvData) else None


def choices() -> dict[str, list[str]]:
    """The words that some fields may have."""
    schema = Experiment.model_json_schema()

    def tags(table: str, field: str) -> list[str]:
        found = []
        for each in schema["properties"][table]["oneOf"]:
            told = schema["$defs"][each["$ref"].rsplit("/", 1)[1]]["properties"][field]
            found += told.get("enum", [told.get("const")])
        return [tag for tag in found if tag not in ("mnist", "registered")]

    def words(kind: str, field: str) -> list[str]:
        return schema["$defs"][kind]["properties"][field]["enum"]

    return {
        "data.source": tags("data", "source"),
        "start.kind": tags("start", "kind"),
        "network.kind": words("NetworkSettings", "kind"),
        "loss.kind": words("LossSettings", "kind"),
    }


def descriptions() -> dict[str, str]:
    """What each field means, as it is said in an experiment file."""
    return {name: field_description(name) for name in field_names() if name != "title"}


def _field_in(sentence: str) -> str | None:
    """The field that a refusal names first, as all of them do."""
    parts = sentence.split("`")
    return parts[1] if len(parts) > 2 else None
