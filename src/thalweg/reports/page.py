"""The page: one HTML file with its pictures inside, which needs nothing else.

What is on it is gathered here, how it looks is in `templates`; there everything is escaped.
"""

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from thalweg.experiment.folders import IN_OVERVIEW
from thalweg.reports.captions import captions
from thalweg.reports.formulas import formula
from thalweg.reports.sentences import findings, setting
from thalweg.reports.summary import OSCILLATING, summary, table

_HIDDEN = ("kind", "format", "title", "digest", "experiment", "certificates")
"""Attributes that are on the page elsewhere."""

Rows = list[dict[str, str]]


def page(results: xr.Dataset, drawn: Mapping[str, bytes]) -> str:
    """All of it, with pictures as PNG by name."""
    told = captions(results)
    return environment().get_template("page.html").render(
        title=results.attrs["title"] or "Gradient descent next to the gradient flow",
        setting=setting(results),
        findings=findings(results),
        rows=table(results),
        oscillating=any(row["phase"] in OSCILLATING for row in summary(results)),
        overview=_inside(drawn["overview"]),
        panels={name: told[name] for name in IN_OVERVIEW if name in drawn},
        pictures=[
            {"name": name, "caption": told[name], "png": _inside(png)}
            for name, png in drawn.items()
            if name not in ("overview", *IN_OVERVIEW)
        ],
        certificates=_certificates(results.attrs["certificates"]),
        origin=_origin(results),
        experiment=results.attrs["experiment"],
    )  # fmt: skip


@cache
def environment() -> Environment:
    """The templates, in which everything is escaped."""
    found = Environment(
        loader=PackageLoader("thalweg", "reports/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    found.filters |= {"with_code": _with_code, "columns": _columns, "formula": formula}
    return found


def _certificates(text: str) -> dict[str, Any] | None:
    """What was checked, as tables; None if nothing was."""
    if not text:
        return None
    found = json.loads(text)
    return {
        "learning_rate": found["learning_rate"],
        "target_loss": found["target_loss"],
        "answers": [
            {"question": each["question"], "theorems": _by_theorem(each["rows"])}
            for each in found["answers"]
        ],
        "compared": found["compared"],
        "refused": found["refused"],
        "refused_count": found["checked"] - found["applying"],
    }


def _by_theorem(rows: Rows) -> list[dict[str, Any]]:
    """Rows of one theorem that follow each other as one entry, with all bounds that it gives."""
    entries: list[dict[str, Any]] = []
    for row in rows:
        if row["statement"] or not entries:  # told once, before the others of that theorem
            entries.append({**row, "share": row.get("share", ""), "bounds": []})
        told = {name: row[name] for name in ("bound", "measured", "condition")}
        entries[-1]["bounds"].append(told)
    return entries


def _inside(png: bytes) -> str:
    return base64.b64encode(png).decode()


def _origin(results: xr.Dataset) -> str:
    facts = {
        name: value
        for name, value in results.attrs.items()
        if name not in _HIDDEN and value not in ("", None)
    }
    facts["seconds"] = round(float(facts["seconds"]), 1)
    return "\n".join(f"{name:26} {value}" for name, value in facts.items())


def _with_code(sentence: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def _columns(rows: Rows) -> list[str]:
    """The columns that are not empty everywhere."""
    return [name for name in rows[0] if any(row[name] for row in rows)]
