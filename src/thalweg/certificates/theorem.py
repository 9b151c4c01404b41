"""Theorems: assumptions and conclusions about a subject, which is often a case that was narrowed.

A theorem about training needs a training of some kind: a linear network on a squared error, say.
That the case is of this kind are assumptions like others, but without them the rest makes no sense.
So a case is *narrowed* once, into a setting that has what the theorem speaks about under its own
names, made together with the claims that say so; the theorem is stated about the setting.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
from typing_extensions import override

from thalweg._checks import InputError
from thalweg.certificates.answers import Answer
from thalweg.certificates.case import Case
from thalweg.certificates.certificate import Certificate
from thalweg.certificates.claim import Claim

Subject = TypeVar("Subject")
Setting = TypeVar("Setting")
Narrower = TypeVar("Narrower")


class AbstractTheorem(eqx.Module, Generic[Subject]):
    """A statement about a subject; its fields are the free numbers of the statement."""

    reference: ClassVar[str]

    @abstractmethod
    def assumptions(self, subject: Subject, /) -> tuple[Claim, ...]:
        """What must hold. It may end at the first claim without which the next makes no sense."""

    @abstractmethod
    def conclusions(self, subject: Subject, /) -> tuple[Claim, ...]:
        """What then follows and can be looked at; called only where the assumptions hold."""

    def answers(self, subject: Subject, /) -> tuple[Answer, ...]:
        """What is promised in numbers; called only where the assumptions hold."""
        return ()

    def check(self, subject: Subject, /) -> Certificate:
        """Compare the statement with the subject."""
        return self._certificate(tuple(self.assumptions(subject)), subject)

    @classmethod
    def title(cls) -> str:
        """The first sentence of the docstring."""
        return (cls.__doc__ or cls.__name__).strip().split("\n", 1)[0].rstrip(".")

    def _certificate(self, assumptions: tuple[Claim, ...], subject: Subject) -> Certificate:
        applies = met(assumptions)
        return Certificate(
            self.reference,
            self.title(),
            assumptions,
            tuple(self.conclusions(subject)) if applies else (),
            tuple(self.answers(subject)) if applies else (),
        )


@dataclass(frozen=True)
class Narrowed(Generic[Setting]):
    """The claims that a case is of some kind, and what it is in those terms.

    Attributes:
        claims: that the case is of this kind.
        setting: the case in those terms; None where it is of another kind.
    """

    claims: tuple[Claim, ...]
    setting: Setting | None

    def __post_init__(self):
        if self.setting is None and met(self.claims):
            raise InputError("A case that is of another kind must have a claim that says so.")

    @classmethod
    def where(cls, claims: tuple[Claim, ...], setting: Setting) -> "Narrowed[Setting]":
        """The setting where all claims hold."""
        return cls(claims, setting if met(claims) else None)

    @property
    def known(self) -> Setting:
        """The setting, of what is of this kind."""
        if self.setting is None:
            needed = next(claim.statement for claim in self.claims if not claim.holds_clearly)
            raise InputError(f"This can be asked only where {needed!r} holds, and it does not.")
        return self.setting

    def further(self, narrow: "Callable[[Setting], Narrowed[Narrower]]") -> "Narrowed[Narrower]":
        """Narrowed further, if it is of this kind."""
        if self.setting is None:
            return Narrowed(self.claims, None)
        found = narrow(self.setting)
        return replace(found, claims=(*self.claims, *found.claims))


class AbstractTrainingTheorem(AbstractTheorem[Setting]):
    """A theorem about a training: of the setting that a case is narrowed to."""

    @abstractmethod
    def narrowed(self, case: Case, /) -> Narrowed[Setting]:
        """The claims that the case is of the kind that the theorem needs, and what it is then."""

    @override
    def assumptions(self, subject: Setting, /) -> tuple[Claim, ...]:
        """What must hold besides."""
        return ()

    @override
    def check(self, subject: Setting | Case, /) -> Certificate:
        """Compare the statement with a case, or with a setting that stands for itself."""
        if not isinstance(subject, Case):
            return super().check(subject)
        found = self.narrowed(subject)
        if found.setting is None:
            return Certificate(self.reference, self.title(), found.claims)
        assumptions = (*found.claims, *self.assumptions(found.setting))
        return self._certificate(assumptions, found.setting)


def met(claims: Iterable[Claim]) -> bool:
    """Whether these assumptions hold clearly, so that what comes next makes sense."""
    return all(claim.holds_clearly for claim in claims)
