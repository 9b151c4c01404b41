"""The pages of the statements: one each, the list of all, the errata of each paper, and what is ours.

What a statement says stands in docs/statements/, a section per statement:

    ## thm1
    <!-- subject; questions -->
    what it says, in words and in mathematics
    ### Assumptions
    ### Correction: what was wrong       with **Where.**, **Printed.**, **Counterexample.** and so on
    ### Sharper: what is better here
    ### How tight                        pictures; what was measured comes from the catalogue

Everything else (code, tests, looseness) comes from the catalogue and from the sources.
"""

import ast
import html
import inspect
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TEXTS = ROOT / "docs" / "statements"
PAPERS = {
    "arora2019": "Arora, Cohen, Golowich, Hu 2019",
    "elkabetz2021": "Elkabetz, Cohen 2021",
    "marion2024": "Marion, Chizat 2024",
}
SOURCES = (*PAPERS, "thalweg")  # what stands in no paper comes last
SUBJECTS = {
    "setting": "setting",
    "landscape": "how the loss curves",
    "sharpness": "sharpness of minimisers",
    "balance": "balanced layers",
    "convergence": "linear convergence",
    "one-output": "one output, stage by stage",
    "small-starts": "small starts",
    "residual-starts": "residual starts",
    "discretisation": "descent against flow",
    "finite-steps": "descent with finite steps",
    "probability": "random starts",
}
QUESTIONS = {
    "converges": "Does training converge?",
    "rate": "How fast?",
    "learning-rate": "How large may the learning rate be?",
    "distance": "How far is descent from the flow?",
    "curvature": "How does the loss curve?",
    "sharpness": "How flat is the minimiser?",
    "probability": "How likely is it?",
    "structure": "What do layers and products look like?",
}
_KINDS = {"thm": "Theorem", "lemma": "Lemma", "lem": "Lemma", "prop": "Proposition", "claim": "Claim",
          "cor": "Corollary", "eq": "Equation", "def": "Definition", "proc": "Procedure"}  # fmt: skip
_TITLES = {
    "arora2019:cor-cert": "What theorem 1 certifies, in numbers",
    "arora2019:cor-Tint": "Fewer iterations",
    "arora2019:cor-cert2": "Larger certified learning rates",
    "arora2019:cor-lr-gap": "The limit of linear stability",
    "arora2019:cor-residual": "The margin of identity layers",
    "arora2019:cor-smallinit": "Small starts have no margin",
    "arora2019:open-joint": "Margin and balance together",
    "arora2019:eq3-loss": "Equation 3: the loss",
    "arora2019:eq4-gd": "Equation 4: gradient descent",
    "elkabetz2021:appF": "Appendix F: white inputs",
    "elkabetz2021:exactflow": "The flow in closed form",
    "elkabetz2021:eq25-27": "Equations 25 to 27: the worst case",
    "elkabetz2021:cert1": "A posteriori distance",
    "elkabetz2021:cert2": "A posteriori distance, from both sides",
    "marion2024:def-model": "The network",
    "marion2024:def-risk": "The risk",
    "marion2024:def-sharpness": "Sharpness",
    "marion2024:def-smin": "The lower bound on sharpness",
    "marion2024:def-eps": "The size of a start",
    "marion2024:d-reduced-sharpness": "Sharpness of a minimiser, reduced",
    "marion2024:asm-A1": "Assumption A1",
    "marion2024:asm-A2": "Assumption A2",
    "marion2024:asm-A3": "Assumption A3",
    "marion2024:ex-rescale": "Example: rescaled layers",
    "marion2024:ex-prod": "Example: a product of numbers",
    "marion2024:d-min-sharpness": "The least sharpness of all minimisers",
    "marion2024:d-S0": "The sharpness that small starts end with",
    "marion2024:lem3-failure": "Lemma 3: the probability of failure",
    "marion2024:eq-gradbounds": "Equations 33 and 39: bounds on gradients",
    "marion2024:thm4-det": "Theorem 4, without chance",
    "marion2024:chi2-tail": "Tail of chi-squared",
    "thalweg:balance-law": "The balance law of descent",
    "thalweg:catapult": "The catapult of two layers",
    "thalweg:two-cycles": "Two-cycles above the edge",
}
_CITED = re.compile(r"`((?:arora2019|elkabetz2021|marion2024|thalweg):([\w-]+))`")
_FORMULA = re.compile(r"^\$\$\n.*?\n\$\$$", re.M | re.S)
_ORPHAN = "---\norphan: true\n---\n\n"


@dataclass(frozen=True)
class Part:
    """A part of a statement's text: its heading and what is below it."""

    heading: str
    body: str

    @property
    def kind(self) -> str:
        """`Assumptions`, `Correction`, `Sharper` or `How tight`."""
        return self.heading.partition(":")[0]


@dataclass(frozen=True)
class Text:
    """What docs/statements says of one statement."""

    id: str
    subject: str
    questions: tuple[str, ...]
    body: str
    parts: tuple[Part, ...] = field(repr=False)

    def of(self, kind: str) -> list[Part]:
        """The parts of one kind."""
        return [each for each in self.parts if each.kind == kind]


def title(statement: str) -> str:
    """What the page of a statement is called."""
    if statement in _TITLES:
        return _TITLES[statement]
    name = statement.partition(":")[2]
    match = re.fullmatch(r"([a-z]+?)(\d+)", name)
    if match is None or match[1] not in _KINDS:
        raise ValueError(f"{statement} has no title: add one to `_TITLES`.")
    return f"{_KINDS[match[1]]} {match[2]}"


@cache
def sections(paper: str) -> dict[str, str]:
    """The sections of a paper's text, by heading."""
    text = (TEXTS / f"{paper}.md").read_text("utf-8")
    found = re.split(r"^## (.+)\n", text, flags=re.M)
    return dict(zip(found[1::2], (body.strip() for body in found[2::2]), strict=True))


@cache
def texts() -> dict[str, Text]:
    """All texts by the id of their statement, in the order of the papers."""
    skipped = {"Notation", "Misprints without consequences"}
    return {
        f"{paper}:{name}": _text(f"{paper}:{name}", section)
        for paper in SOURCES
        for name, section in sections(paper).items()
        if name not in skipped
    }


def _text(statement: str, section: str) -> Text:
    match = re.match(r"<!-- ([\w-]+); ([\w -]+) -->\n", section)
    if match is None or match[1] not in SUBJECTS or set(match[2].split()) - set(QUESTIONS):
        raise ValueError(f"{statement} must begin with a line of its subject and questions.")
    body, *rest = re.split(r"^### (.+)\n", section[match.end() :], flags=re.M)
    parts = tuple(Part(a, b.strip()) for a, b in zip(rest[::2], rest[1::2], strict=True))
    return Text(statement, match[1], tuple(match[2].split()), body.strip(), parts)


def write(source: Path) -> None:
    """Write all these pages."""
    from thalweg.theorems.catalogue import rows

    found = rows()
    if [each["statement"] for each in found] != list(texts()):
        raise ValueError("docs/statements must have the statements of the catalogue, in its order.")
    folder = source / "statements"
    for index, row in enumerate(found):
        paper, _, name = row["statement"].partition(":")
        page = folder / paper / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_page(row, found, index), "utf-8")
    (source / "theorems.md").write_text(_list(found), "utf-8")
    errata = source / "errata"
    errata.mkdir(exist_ok=True)
    for paper in PAPERS:
        (errata / f"{paper}.md").write_text(_errata(paper), "utf-8")
    (errata / "index.md").write_text(_errata_index(), "utf-8")
    (source / "ours.md").write_text(_ours(source, found), "utf-8")


def _linked(text: str, up: str) -> str:
    """With statements that are named in it turned into links, and pictures found from the page."""
    return _CITED.sub(
        lambda match: f"[`{match[1]}`]({up}statements/{match[1].replace(':', '/')}.md)",
        text.replace("](../", f"]({up}"),
    )


def _tags(row: dict[str, Any], text: Text) -> str:
    tags = [f'<span class="tag">{html.escape(SUBJECTS[text.subject])}</span>']
    if row["ours"]:
        tags.append('<span class="tag ours">ours</span>')
    if text.of("Correction"):
        tags.append('<span class="tag corrected">corrected</span>')
    if text.of("Sharper"):
        tags.append('<span class="tag ours">sharper here</span>')
    return "".join(tags)


def _page(row: dict[str, Any], found: list[dict[str, Any]], index: int) -> str:
    text = texts()[row["statement"]]
    paper = row["statement"].partition(":")[0]
    heading = f"# {title(row['statement'])} ({paper})"
    above = f"[Theorems](../theorems.md) / {paper} / {row['statement']}"
    lines = [
        _ORPHAN,
        heading,
        "",
        above,
        "",
        f"```{{raw}} html\n<p>{_tags(row, text)}</p>\n```",
        "",
    ]
    lines += [f"**{row['meaning']}**", "", text.body, ""]
    for part in text.of("Assumptions") + text.of("Correction") + text.of("Sharper"):
        lines += [f"## {part.heading}", "", part.body, ""]
    tight = text.of("How tight")
    if row["looseness"] or tight:
        said = row["looseness"]
        sentence = f"{said[0].upper()}{said[1:]}." if said else ""
        lines += ["## How tight", "", sentence, "", *(part.body for part in tight), ""]
    notation = sections(paper)["Notation"]
    lines += [f"## Notation\n\n:::{{dropdown}} Symbols of {paper}\n{notation}\n:::\n"]
    near = []
    if index > 0:
        near.append(f"Previous: `{found[index - 1]['statement']}`")
    if index + 1 < len(found):
        near.append(f"Next: `{found[index + 1]['statement']}`")
    code = ["## Code and tests", "", *_code(row), "", "---", ""]
    after = _linked(" · ".join(near), "../../")
    return "\n".join([_linked("\n".join(lines), "../../"), *code, after]) + "\n"


def _code(row: dict[str, Any]) -> list[str]:
    from thalweg.theorems import registry

    code = inspect.unwrap(registry[row["statement"]])
    name = row["code"].rpartition(".")[2]
    place = Path(inspect.getsourcefile(code) or "").relative_to(ROOT)
    lines = [f"`{name}` in `{place.as_posix()}`; `thalweg theorems {row['statement']}` shows it in a terminal.", ""]  # fmt: skip
    lines += [f":::{{dropdown}} Source of {name}\n```python\n{inspect.getsource(code).rstrip()}\n```\n:::\n"]  # fmt: skip
    for kind, tests in row["tests"].items():
        label = {"holds": "that it holds", "tight": "how tight it is", "fails": "that it can fail",
                 "value": "its value"}[kind]  # fmt: skip
        shown = "\n\n".join(_test(test) for test in tests)
        lines.append(f":::{{dropdown}} Tests: {label} ({len(tests)})\n{shown}\n:::\n")
    return lines


def _test(name: str) -> str:
    file, _, function = name.partition("::")
    text, nodes = _parsed(ROOT / "tests" / file)
    node = nodes[function]
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    shown = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return f"`tests/{file}`\n```python\n{shown}\n```"


@cache
def _parsed(path: Path) -> tuple[str, dict[str, ast.FunctionDef]]:
    text = path.read_text("utf-8")
    functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
    return text, {each.name: each for each in functions}


_LIST = """# Theorems

Every statement of the three papers that is about training, and what stands in no paper, with the
code that checks it: what it says in words and in mathematics, what it assumes, where the print is
wrong, how tight it is, and its tests. `thalweg theorems` lists them in a terminal, `thalweg certify` tries those that apply to an
experiment, and `thalweg.theorems.registry["arora2019:thm1"]` is the first of them in Python.
"""


def _list(found: list[dict[str, Any]]) -> str:
    fields = [
        _select("paper", "paper", {**PAPERS, "ours": "ours"}),
        _select("subject", "subject", SUBJECTS),
        _select("question", "question", QUESTIONS),
        _select("mark", "mark", {"corrected": "corrected here", "sharper": "sharper here"}),
        '<label>words<input type="search" name="words" placeholder="balanced gaussian"></label>',
    ]
    items = "\n".join(_item(row) for row in found)
    return (
        f"{_LIST}\n```{{raw}} html\n"
        f'<form class="filters">{"".join(fields)}</form>\n<p class="statements-count" aria-live="polite">'
        f'{len(found)} of {len(found)} statements</p>\n<ul class="statements">\n{items}\n</ul>\n```\n'
    )


def _select(name: str, label: str, options: dict[str, str]) -> str:
    listed = "".join(f'<option value="{a}">{html.escape(b)}</option>' for a, b in options.items())
    return f'<label>{label}<select name="{name}"><option value="">all</option>{listed}</select></label>'


def _item(row: dict[str, Any]) -> str:
    text = texts()[row["statement"]]
    paper, _, name = row["statement"].partition(":")
    papers = f"{paper} ours" if row["ours"] else paper
    marks = [mark for mark, kind in (("corrected", "Correction"), ("sharper", "Sharper")) if text.of(kind)]  # fmt: skip
    data = {"paper": papers, "subject": text.subject, "question": " ".join(text.questions),
            "mark": " ".join(marks)}  # fmt: skip
    attributes = " ".join(f'data-{key}="{value}"' for key, value in data.items())
    return (
        f'<li {attributes}><div><a href="statements/{paper}/{name}.html">{title(row["statement"])}</a>'
        f"<small>{row['statement']}</small></div>"
        f"<div>{html.escape(row['meaning'])}<br>{_tags(row, text)}</div></li>"
    )


def _errata(paper: str) -> str:
    own = [each for each in texts().values() if each.id.startswith(paper)]
    lines = [f"# Errata of {paper}", "", sections_head(paper), "",
             "Counterexamples are run by the tests, as they stand here."]  # fmt: skip
    for text in own:
        for part in text.of("Correction"):
            lines += ["", f"## {title(text.id)}: {part.heading.partition(': ')[2]}", "",
                      f"`{text.id}`, as corrected:", "", *_formulas(text.body), "", part.body]  # fmt: skip
    lines += ["", "## Sharper forms", "",
              "What holds under the same assumptions, and says more than the print."]  # fmt: skip
    for text in own:
        for part in text.of("Sharper"):
            lines += ["", f"### {title(text.id)}: {part.heading.partition(': ')[2]}", "",
                      f"Of `{text.id}`.", "", part.body]  # fmt: skip
    lines += ["", "## Misprints without consequences", "",
              sections(paper)["Misprints without consequences"]]  # fmt: skip
    return _linked("\n".join(lines), "../") + "\n"


def sections_head(paper: str) -> str:
    """Which paper it is: the lines between the title and the first section."""
    text = (TEXTS / f"{paper}.md").read_text("utf-8")
    return text.split("\n## ")[0].partition("\n")[2].strip()


def _formulas(body: str) -> list[str]:
    return [f"{formula}\n" for formula in _FORMULA.findall(body)]


def _errata_index() -> str:
    lines = [
        "# Errata and sharpenings", "",
        "Each statement of the three papers was derived again, turned into code and tried on many "
        "instances. Nearly all of them hold as printed. These pages list what does not, with numbers "
        "that refute the print and can be run again, and what holds in its place; and where the same "
        "assumptions give more than is claimed.", "",
        "Where a scanned copy may be at fault (a comma for a product, a ceiling for a floor) the page "
        "says so, or the entry is among the misprints.", "",
        "| paper | corrected | sharper |", "|---|---|---|",
    ]  # fmt: skip
    for paper, authors in PAPERS.items():
        own = [each for each in texts().values() if each.id.startswith(paper)]
        counts = [sum(len(each.of(kind)) for each in own) for kind in ("Correction", "Sharper")]
        lines.append(f"| [{authors}]({paper}.md) | {counts[0]} | {counts[1]} |")
    lines += ["", "```{toctree}", ":hidden:", *PAPERS, "```"]
    return "\n".join(lines) + "\n"


def _ours(source: Path, found: list[dict[str, Any]]) -> str:
    head = (source / "ours.md").read_text("utf-8")
    before, _, after = head.partition("<!-- statements -->")
    lines = []
    for row in found:
        if row["ours"]:
            text = texts()[row["statement"]]
            lines += [f"### {title(row['statement'])}", "", f"`{row['statement']}`. {row['meaning']}",
                      "", *_formulas(text.body)]  # fmt: skip
    sharper = [each for each in texts().values() if each.of("Sharper")]
    lines += ["## Sharper forms of what is in the papers", ""]
    lines += [
        f"- `{each.id}` ({title(each.id)}): {part.heading.partition(': ')[2]}"
        for each in sharper
        for part in each.of("Sharper")
    ]
    return before + _linked("\n".join(lines), "") + "\n" + after
