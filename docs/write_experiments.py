"""Write docs/experiments.md: every field of an experiment file, from the models themselves.

Run by `make docs`; a test holds the page against what this writes.
"""

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from thalweg.experiment import Experiment
from thalweg.experiment.settings import Data, Start

PAGE = Path(__file__).parent / "experiments.md"

_HEAD = """# Experiment files

Written by `make docs` from the models in `thalweg.experiment.settings` and `data_settings`.

An experiment is a TOML file with a table per part. Everything has a default: the empty file is the
set-up of marion2024 at depth 10. `thalweg init` writes a file with all fields and what they mean,
`thalweg run FILE` runs one, and `--set network.depth=3` changes a field of it. An unknown field, a
wrong type or an impossible combination ends in one sentence that names the field and the fix, and
exit code 2. In Python the same object is `thalweg.experiment.Experiment`; `experiment.read(path)`
and `experiment.to_toml(experiment)` go both ways. [examples/](../examples) has one file per paper,
a sweep, and three on real or own data.

`thalweg run` leaves a folder: `report.html` (opens from disk), each picture as PNG,
`results.zarr` (one xarray dataset), and `experiment.toml` with every field resolved, which makes
the same results again. Interrupted, the same command goes on where it stopped: finished parts
wait in `.partial` until the report is written. `thalweg show FOLDER` says again what was found,
and `--figures` draws it again; neither computes anything. Data that were damaged or lost since are
named by their checksums (`SHA256SUMS`) and never shown.
"""

_CHOICES = {"data": Data, "start": Start}
_SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def page() -> str:
    """The page, one section per table."""
    lines = [_HEAD, "\n## At the top\n", *_table(Experiment, ["title"])]
    for name, info in Experiment.model_fields.items():
        if name in _CHOICES:
            lines.append(f"\n## [{name}]\n")
            for kind in get_args(get_args(_CHOICES[name])[0]):
                choice = "source" if name == "data" else "kind"
                tags = get_args(kind.model_fields[choice].annotation)
                named = " or ".join(f'`{choice} = "{tag}"`' for tag in tags)
                lines += [f"\n### {named}\n", kind.__doc__.strip(), "", *_table(kind)]
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            lines += [f"\n## [{name}]\n", (info.annotation.__doc__ or "").strip(), ""]
            lines += _table(info.annotation)
    lines += ["\n## [[sweep]]\n", _sentence(Experiment.model_fields["sweep"].description)]
    return "\n".join(lines) + "\n"


def _table(model: type[BaseModel], names: list[str] | None = None) -> list[str]:
    schema = model.model_json_schema()["properties"]
    lines = ["| field | value | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        if names is None or name in names:
            cells = (f"`{name}`", _value(schema[name]), _default(info), info.description or "")
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _value(schema: dict[str, Any], plural: str = "") -> str:
    """What may be written, in words."""
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(_value(each, plural) for each in kinds)
    if "const" in schema or "enum" in schema:
        return ", ".join(f'"{each}"' for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        items = schema.get("items") or schema["prefixItems"][0]
        return f"list{plural} of {_value(items, 's')}"
    word = {
        "integer": "whole number", "number": "number", "boolean": "true, false", "string": "text",
    }[schema["type"]]  # fmt: skip
    said = {key: schema[key] for key in _SIGNS if key in schema and schema[key] != 2**63}
    bounds = [f"{_SIGNS[key]} {value:.12g}" for key, value in said.items()]
    return " ".join([word + plural, " and ".join(bounds)]).strip()


def _default(info: Any) -> str:
    if info.default is PydanticUndefined:
        return "must be given"
    if info.default is None:
        return ""
    return f"`{_toml(info.default)}`"


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _sentence(text: str | None) -> str:
    return f"{(text or '')[:1].upper()}{(text or '')[1:]}."


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
