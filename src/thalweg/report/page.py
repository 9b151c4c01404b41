"""The page: one HTML file with its pictures inside, which needs nothing else."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import xarray as xr

from thalweg.report.captions import captions
from thalweg.report.sentences import findings, setting
from thalweg.report.summary import table

_STYLE = """
:root { color-scheme: light dark; --ink: #1d232a; --soft: #5c6670; --line: #d9dee3; --back: #fff;
  --card: #f6f7f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --soft: #a3acb5; --line: #3a424b;
  --back: #16191d; --card: #20252b; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
  background: var(--back); max-width: 66rem; margin: 0 auto; padding: 1.2rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .6rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p, ul { max-width: 46rem; } li { margin: .25rem 0; }
.soft { color: var(--soft); }
.pictures { display: grid; gap: 1.6rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; } figcaption { font-size: .92rem; margin-top: .4rem; color: var(--soft); }
img { display: block; width: 100%; height: auto; background: #fff; border-radius: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; } td.n, th.n { text-align: right; white-space: nowrap; }
table.stack td:first-child { white-space: nowrap; }
details { margin: .8rem 0; } summary { cursor: pointer; }
pre { background: var(--card); padding: .8rem; overflow-x: auto; font-size: .82rem;
  border-radius: 6px; }
@media (max-width: 40rem) {
  table.numbers thead { display: none; }
  table.numbers, table.numbers tbody, table.numbers tr { display: block; }
  table.numbers tr { padding: .4rem 0; border-bottom: 1px solid var(--line); }
  table.numbers td { display: inline-block; border: 0; padding: 0 .9rem 0 0; }
  table.numbers td::before { content: attr(data-name) ": "; color: var(--soft); }
  table.stack thead { display: none; }
  table.stack, table.stack tbody, table.stack tr, table.stack td { display: block; }
  table.stack tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  table.stack td { border: 0; padding: .05rem 0; text-align: left; white-space: normal; }
  table.stack td:not(:empty)::before { content: attr(data-name) ": "; color: var(--soft); }
}
"""

_HIDDEN = ("kind", "format", "title", "digest", "experiment", "certificates")
"""Attributes that are on the page elsewhere."""

Rows = list[dict[str, str]]


def page(results: xr.Dataset, drawn: Mapping[str, bytes]) -> str:
    """All of it, with pictures as PNG by name."""
    title = results.attrs["title"] or "Gradient descent next to the gradient flow"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=soft>{escape(setting(results))}</p>",
        "<h2>What was found</h2>",
        "<ul>" + "".join(f"<li>{_text(each)}</li>" for each in findings(results)) + "</ul>",
        _table(table(results), numbers=True),
        "<h2>Over time</h2>",
        _pictures(results, drawn),
        _certificates(results),
        _origin(results),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style></head><body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _pictures(results: xr.Dataset, drawn: Mapping[str, bytes]) -> str:
    told = captions(results)
    figures = [
        f'<figure id="{name}"><img alt="{escape(told[name], quote=True)}" '
        f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{_text(told[name])}</figcaption></figure>"
        for name, png in drawn.items()
    ]
    return f'<div class="pictures">{"".join(figures)}</div>'


def _certificates(results: xr.Dataset) -> str:
    if not results.attrs["certificates"]:
        return ""
    found = json.loads(results.attrs["certificates"])
    parts = [
        "<h2>What is guaranteed</h2>",
        f"<p>Published statements, checked for the run at η = {found['learning_rate']:g} with a "
        f"target loss of {found['target_loss']:.3g}; the strongest answer to each question first. "
        "<em>Margin</em> is that of the assumption that holds most narrowly.</p>",
    ]
    for each in found["answers"]:
        parts.append(f"<h3>{_capital(escape(each['question']))}</h3>")
        parts.append(_table(_answers(each["rows"])))
    if not found["answers"]:
        parts.append("<p>None of them applies here.</p>")
    if found["compared"]:
        rows = [
            {
                "source": row["statement"],
                "conclusion": row["claim"],
                "values": row["is"],
                "verdict": row["verdict"],
            }
            for row in found["compared"]
        ]
        parts.append(_folded(f"Conclusions against measurements ({len(rows)})", _table(rows)))
    rows = [
        {
            "assumption": row["needs"],
            "values": row["is"],
            "margin": row["margin"],
            "source": ", ".join(row["statements"]),
        }
        for row in found["refused"]
    ]
    refused = found["checked"] - found["applying"]
    parts.append(_folded(f"What does not apply, and why ({refused} statements)", _table(rows)))
    return "\n".join(parts)


def _answers(rows: list[dict[str, Any]]) -> Rows:
    """What a statement says is told once, where it answers several times in a row."""
    told, last = [], None
    for row in rows:
        again = row["statement"] == last
        told.append(
            {
                "bound": row["value"],
                "measured": row["measured"],
                "source": row["statement"],
                "statement": "" if again else row["title"],
                "condition": row["condition"],
                "margin": "" if again else row["margin"],
            }
        )
        last = row["statement"]
    return told


def _origin(results: xr.Dataset) -> str:
    facts = {
        name: value
        for name, value in results.attrs.items()
        if name not in _HIDDEN and value not in ("", None)
    }
    facts["seconds"] = round(float(facts["seconds"]), 1)
    listed = "\n".join(f"{name:26} {value}" for name, value in facts.items())
    return (
        "<h2>How it was made</h2>"
        + _folded("Versions and machine", f"<pre>{escape(listed)}</pre>")
        + _folded("The experiment", f"<pre>{escape(results.attrs['experiment'])}</pre>")
    )


def _text(sentence: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(sentence))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def _table(rows: Rows, numbers: bool = False) -> str:
    """One row per entry; columns that are empty everywhere are left out."""
    if not rows:
        return ""
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    kind = ' class="n"' if numbers else ""
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{_cells(row, names, kind)}</tr>" for row in rows)
    look = "numbers" if numbers else "stack"
    return (
        f'<div class="wide"><table class="{look}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(row: Mapping[str, str], names: Iterable[str], kind: str) -> str:
    return "".join(
        f'<td{kind} data-name="{escape(name, quote=True)}">{escape(row[name])}</td>'
        for name in names
    )
