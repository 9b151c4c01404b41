"""What is guaranteed here: every theorem about training, tried on one case.

`certify` asks all of them. Those that apply answer in numbers, which are sorted by strength under
the question that they answer; of the others the first assumption that fails is kept, and by how
much it does.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from inspect import isabstract
from typing import Any, get_args, get_origin

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from thalweg._arguments import checked
from thalweg._checks import InputError
from thalweg._typing import Weights
from thalweg.dynamics import Descent, Flow
from thalweg.objective import Objective
from thalweg.theorems.case import Case, RandomStart
from thalweg.theorems.certificate import (
    AbstractTheorem,
    Answer,
    Certificate,
    Question,
    Verdict,
    plain_table,
    sorted_by_strength,
)
from thalweg.theorems.magnitude import readable
from thalweg.theorems.measured import Measured, measure
from thalweg.theorems.papers import STATEMENTS


@dataclass(frozen=True, eq=False)
class Guarantees:
    """The certificates of one case, in the order of the papers."""

    case: Case
    certificates: tuple[Certificate, ...]

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.certificates)

    def __len__(self) -> int:
        return len(self.certificates)

    def __getitem__(self, reference: str) -> Certificate:
        """The certificate of a statement, by its id; several may share one theorem."""
        own = {each.id: getattr(each.code, "reference", each.id) for each in STATEMENTS}
        name = own.get(reference, reference)
        found = next((each for each in self.certificates if each.reference == name), None)
        if found is None:
            raise InputError(
                f"{reference!r} must be the id of a statement about training, such as "
                f"{self.certificates[0].reference!r}; `thalweg theorems` lists all."
            )
        return found

    @property
    def applying(self) -> tuple[Certificate, ...]:
        """Those whose assumptions hold."""
        return tuple(each for each in self.certificates if each.applies)

    @property
    def violated(self) -> tuple[Certificate, ...]:
        """Those whose conclusions do not hold: then the theorem, or its code, is wrong."""
        return tuple(each for each in self.certificates if each.verdict is Verdict.VIOLATED)

    def answers(self, question: Question) -> list[tuple[Answer, Certificate]]:
        """All answers to a question, the strongest first."""
        owners = {id(a): c for c in self.certificates for a in c.answers if a.question is question}
        found = [a for c in self.certificates for a in c.answers if a.question is question]
        return [(answer, owners[id(answer)]) for answer in sorted_by_strength(found)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"certificates": [each.to_dict() for each in self.certificates]}

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=1)

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Any]:
        measured = measure(self.case)
        yield Text("\nWhat is guaranteed here", style="bold")
        for question in Question:
            rows = self.answers(question)
            if rows:
                yield _answered(question, rows, measured)
        yield Text(f"\nWhat does not apply, and why ({_count(self.certificates)})", style="bold")
        yield _refused([each for each in self.certificates if not each.applies])
        if self.case.run is not None or self.case.flow is not None:
            yield Text("\nConclusions against measurements", style="bold")
            yield _compared(self.applying)

    def __str__(self) -> str:
        console = Console(width=110, no_color=True)
        with console.capture() as text:
            console.print(self)
        return text.get()


@checked
def certify(
    objective: Objective,
    weights: Weights,
    learning_rate: float | None = None,
    target_loss: float | None = None,
    *,
    time: float | None = None,
    radius: float | None = None,
    random_start: RandomStart | None = None,
    run: Descent | None = None,
    flow: Flow | None = None,
) -> Guarantees:
    """Every theorem that speaks about this training: which apply, by what margin, promising what.

    Args:
        objective: the loss.
        weights: the start.
        learning_rate: of descent; without it the largest guaranteed ones are given.
        target_loss: a value of the objective, to count iterations to.
        time: over which descent is to stay near the flow (learning rate x steps).
        radius: how near.
        random_start: the distribution of the start, for statements about probabilities.
        run: a descent from the start: what was promised is then compared with it.
        flow: the flow from the start, likewise; Theorem 3 of elkabetz2021 needs it.
    """
    case = Case(
        objective, weights, learning_rate, target_loss, time, radius, random_start, run, flow
    )
    return certify_case(case)


@checked
def certify_case(case: Case) -> Guarantees:
    """The same for a case that has been put together already."""
    return Guarantees(case, tuple(_check(theorem(), case) for theorem in theorems_about_cases()))


def _check(theorem: AbstractTheorem[Case], case: Case) -> Certificate:
    """The certificate; where the learning rate is too large, with the one that would not be."""
    found = theorem.check(case)
    if found.applies or case.learning_rate is None:
        return found
    allowed = theorem.check(replace(case, learning_rate=None, run=None)).answers
    rates = (Question.LEARNING_RATE, Question.FOLLOWING_RATE)
    return replace(found, answers=tuple(each for each in allowed if each.question in rates))


@cache
def theorems_about_cases() -> tuple[type[AbstractTheorem[Case]], ...]:
    """Every theorem whose subject is a `Case`, each once, in the order of the papers."""
    classes = dict.fromkeys(statement.code for statement in STATEMENTS)
    return tuple(
        each
        for each in classes
        if isinstance(each, type) and issubclass(each, AbstractTheorem) and _subject(each) is Case
        and not isabstract(each)
    )  # fmt: skip


def _subject(theorem: type) -> Any:
    """What a theorem class speaks about: the argument of its generic base."""
    bases = (base for each in theorem.__mro__ for base in getattr(each, "__orig_bases__", ()))
    return next(get_args(base)[0] for base in bases if get_origin(base) is AbstractTheorem)


def _answered(
    question: Question, rows: list[tuple[Answer, Certificate]], measured: Measured
) -> Group:
    title = Text(f"\n{question.phrase}", style="italic")
    found = [measured.beside(answer) for answer, _ in rows]
    known = any(value is not None for value in found)
    names = ("bound", *(("measured",) if known else ()), "source", "statement", "condition")
    table, last = plain_table(*names), None
    for (answer, owner), value in zip(rows, found, strict=True):
        seen = ("" if value is None else readable(value),) if known else ()
        says = "" if owner is last else owner.title
        cells = (readable(answer.value), *seen, owner.reference, says, answer.condition)
        table.add_row(*map(Text, cells))
        last = owner
    return Group(title, table)


def _refused(certificates: list[Certificate]) -> Table:
    """One row for each reason, with all statements that fail for it."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in certificates:
        broken = each.first_failure
        assert broken is not None  # it does not apply
        sides = broken.describe_sides(clearly=broken in each.assumptions)
        reason = broken.statement, sides, broken.describe_margin()
        reasons.setdefault(reason, []).append(each.reference)
    table = plain_table("assumption", "values", "margin", "source")
    for reason, references in reasons.items():
        table.add_row(*map(Text, (*reason, _by_paper(references))))
    return table


def _by_paper(references: list[str]) -> str:
    """The ids, with each paper's key once."""
    papers: dict[str, list[str]] = {}
    for reference in references:
        paper, name = reference.split(":")
        papers.setdefault(paper, []).append(name)
    return "; ".join(f"{paper}: {', '.join(names)}" for paper, names in papers.items())


def _compared(certificates: tuple[Certificate, ...]) -> Table:
    rows = dict.fromkeys(
        (each.reference, claim.statement, claim.describe_sides(), each.verdict.value)
        for each in certificates
        for claim in each.conclusions
    )
    table = plain_table("source", "conclusion", "values", "verdict")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _count(certificates: tuple[Certificate, ...]) -> str:
    refused = sum(not each.applies for each in certificates)
    return f"{refused} of {len(certificates)} statements about training"
