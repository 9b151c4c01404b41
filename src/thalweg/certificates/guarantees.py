"""What is guaranteed here: every theorem about training, tried on one case.

Those that apply answer in numbers, which are sorted by strength under
the question that they answer; of the others the first assumption that fails is kept, and by how
much it does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isabstract
from typing import Any, get_args, get_origin

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from thalweg._checks import InputError
from thalweg.certificates.case import Case
from thalweg.certificates.certificate import (
    AbstractTheorem,
    Answer,
    Certificate,
    Question,
    Verdict,
    plain_table,
    sorted_by_strength,
)
from thalweg.certificates.magnitude import readable
from thalweg.certificates.measured import Measured, measure
from thalweg.certificates.statement import Statement


@dataclass(frozen=True, eq=False)
class Guarantees:
    """The certificates of one case, in the order of the statements.

    Attributes:
        case: the training that they speak about.
        certificates: one for each theorem.
        names: for each statement's id that of its theorem, which several may share.
    """

    case: Case
    certificates: tuple[Certificate, ...]
    names: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.certificates)

    def __len__(self) -> int:
        return len(self.certificates)

    def __getitem__(self, reference: str) -> Certificate:
        """The certificate of a statement, by its id."""
        name = self.names.get(reference, reference)
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


def check_all(statements: Sequence[Statement], case: Case) -> Guarantees:
    """Every theorem about training among these statements, tried on one case."""
    found = (_check(theorem(), case) for theorem in theorems_about_cases(statements))
    names = {each.id: getattr(each.code, "reference", each.id) for each in statements}
    return Guarantees(case, tuple(found), names)


def _check(theorem: AbstractTheorem[Case], case: Case) -> Certificate:
    """The certificate; where the learning rate is too large, with the one that would not be."""
    found = theorem.check(case)
    if found.applies or case.learning_rate is None:
        return found
    allowed = theorem.check(replace(case, learning_rate=None, run=None)).answers
    rates = (Question.LEARNING_RATE, Question.FOLLOWING_RATE)
    return replace(found, answers=tuple(each for each in allowed if each.question in rates))


def theorems_about_cases(
    statements: Sequence[Statement],
) -> tuple[type[AbstractTheorem[Case]], ...]:
    """Every theorem whose subject is a `Case`, each once, in the order of the statements."""
    classes = dict.fromkeys(statement.code for statement in statements)
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
