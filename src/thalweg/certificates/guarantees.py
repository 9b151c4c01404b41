"""What is guaranteed here: every theorem about training, tried on one case.

Those that apply answer in numbers, which are sorted by strength under the question that they
answer; of the others the first assumption that fails is kept, and by how much it does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from inspect import isabstract
from math import nan
from typing import Any, get_args, get_origin

from thalweg._checks import InputError
from thalweg.certificates.answers import Answer, Question, sorted_by_strength
from thalweg.certificates.case import Case, UndeclaredCase
from thalweg.certificates.certificate import Certificate, Verdict
from thalweg.certificates.claim import requirement
from thalweg.certificates.measured import Measured, measure
from thalweg.certificates.overview import (
    answer_rows,
    compared_rows,
    refused_rows,
    titled_tables,
)
from thalweg.certificates.statement import Statement
from thalweg.certificates.text import html_table, table
from thalweg.certificates.theorem import AbstractTheorem, AbstractTrainingTheorem


@dataclass(frozen=True, eq=False)
class Guarantees:
    """The certificates of one case, in the order of the statements.

    Attributes:
        case: the training that they speak about.
        certificates: one for each theorem.
        names: for each statement's id that of its theorem, which several may share.
    """

    case: Case | UndeclaredCase
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

    def strongest(self, question: Question) -> float:
        """The strongest answer to a question; not a number where there is none."""
        answers = self.answers(question)
        return float(answers[0][0].value) if answers else nan

    def overview(self, measured: Measured | None = None) -> dict[str, Any]:
        """What a reader is shown, as plain data: see the module `overview`.

        Args:
            measured: what stands beside the answers; that of the case's run and flow if not given.
        """
        beside = measure(self.case) if measured is None else measured
        answered = {question: self.answers(question) for question in Question}
        return {
            "learning_rate": self.case.learning_rate,
            "target_loss": self.case.target_loss,
            "radius": self.case.radius,
            "followed": self.case.run is not None,
            "checked": len(self),
            "applying": len(self.applying),
            "violated": [each.reference for each in self.violated],
            "answers": [
                {"question": question.phrase, "rows": answer_rows(found, beside)}
                for question, found in answered.items()
                if found
            ],
            "refused": refused_rows([each for each in self if not each.applies]),
            "compared": compared_rows(self.applying),
        }

    def __str__(self) -> str:
        tables = titled_tables(self.overview())
        return "\n\n".join(f"{title}\n\n{table(rows)}" for title, rows in tables) + "\n"

    def _repr_html_(self) -> str:
        """The answers, with the rest folded away."""
        overview = self.overview()
        parts = []
        for title, rows in titled_tables(overview):
            shut = (
                "" if title in [each["question"] for each in overview["answers"]] else "</details>"
            )
            opened = f"<details><summary>{escape(title)}</summary>" if shut else ""
            said = opened or f"<p><b>{escape(title)}</b></p>"
            parts.append(f"{said}{html_table(rows)}{shut}")
        return "".join(parts)


_DECLARED = "the objective is a network on a problem that declares itself, as tw.Objective is"


def check_all(statements: Sequence[Statement], case: Case | UndeclaredCase) -> Guarantees:
    """Every theorem about training among these statements, tried on one case."""
    found = (_check(theorem(), case) for theorem in theorems_about_cases(statements))
    names = {each.id: getattr(each.code, "reference", each.id) for each in statements}
    return Guarantees(case, tuple(found), names)


def _check(theorem: AbstractTheorem[Any], case: Case | UndeclaredCase) -> Certificate:
    """The certificate; where the learning rate is too large, with the one that would not be."""
    if isinstance(case, UndeclaredCase):
        needed = (requirement(_DECLARED, False),)
        return Certificate(theorem.reference, theorem.title(), needed)
    found = theorem.check(case)
    if found.applies or case.learning_rate is None:
        return found
    allowed = theorem.check(replace(case, learning_rate=None, run=None)).answers
    rates = (Question.LEARNING_RATE, Question.FOLLOWING_RATE)
    return replace(found, answers=tuple(each for each in allowed if each.question in rates))


def theorems_about_cases(statements: Sequence[Statement]) -> tuple[type[AbstractTheorem[Any]], ...]:
    """Every theorem that can be checked on a `Case`, each once, in the order of the statements."""
    classes = dict.fromkeys(statement.code for statement in statements)
    return tuple(each for each in classes if _is_about_cases(each))


def _is_about_cases(code: Any) -> bool:
    if not isinstance(code, type) or not issubclass(code, AbstractTheorem) or isabstract(code):
        return False
    return issubclass(code, AbstractTrainingTheorem) or _subject(code) is Case


def _subject(theorem: type) -> Any:
    """What a theorem class speaks about: the argument of its generic base."""
    bases = (base for each in theorem.__mro__ for base in getattr(each, "__orig_bases__", ()))
    return next(get_args(base)[0] for base in bases if get_origin(base) is AbstractTheorem)
