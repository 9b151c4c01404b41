"""Whether the sides of a claim are what its label names, and its text what its sides are.

A label cannot be computed, but much of what it names cannot have every value: a norm, a loss or a
variance is not negative, a probability is at most one, "2/3" is two thirds. So every side that does
not name something signed must not be negative, and two sides of one certificate that have the same
name must have the same values.
"""

import re
from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
import pytest

from thalweg.certificates import AbstractTheorem, Certificate, Claim, Magnitude
from thalweg.certificates.claim import split_label

# What may be negative: eigenvalues and bounds on them, quadratic forms, logarithms, cosines (nu),
# margins (c), growth rates (m), inner products, losses that need not be squares (f), bounds by
# normal tails (4 Phi), free numbers.
SIGNED = re.compile(
    r"lambda|the (printed|sharper) bound|bound along|closed form|<d, H d>|\blog\b|\bnu\b|\bd_"
    r"|kappa|4 Phi\(|Sigma w|logarithmic norm|\bf(_min)?\b|\b[xahkucm]\b|weight decay"
    r"|imbalance leaves"
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?(/\d+)?")
_ANY_SIZE = Context(Emax=MAX_EMAX, Emin=MIN_EMIN)
_SHOWN = re.compile(r"(\S+) (<=|<) ([^\s,]+)")


@pytest.fixture(scope="session", autouse=True)
def labels_are_held_to_their_sides():
    """Every certificate is read as a person would read it, where a conftest imports this."""
    check = AbstractTheorem.check

    def checked(self, subject, /):
        certificate = check(self, subject)
        found = faults(certificate)
        assert not found, f"{certificate.reference}: " + "; ".join(found)
        return certificate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbstractTheorem, "check", checked)
        yield


def faults(certificate: Certificate) -> list[str]:
    """What is wrong with the labels of a certificate, in words."""
    found, values = [], {}
    claims = [(claim, True) for claim in certificate.assumptions]
    claims += [(claim, False) for claim in certificate.conclusions]
    for claim, assumed in claims:
        if claim.whether:
            continue
        found += [f"{claim.statement}: {fault}" for fault in text_faults(claim, assumed)]
        for name, remark, side in named_sides(claim):
            found += [f"{claim.statement}: {fault}" for fault in side_faults(name, side)]
            other = values.setdefault((name, remark), side)
            if _array(other).shape == _array(side).shape and not _same(other, side):
                found.append(f"{claim.statement}: another claim has other values of {name}")
    return found


def named_sides(claim: Claim) -> Iterator[tuple[str, str, object]]:
    """The name of each side without remarks, the remark, and the values."""
    left, relation, right = split_label(claim.statement)
    if relation == "=":
        return
    lesser = left.rpartition(": ")[2]
    greater, remark = _without_remark(right)
    # What is compared with zero is a free number of the statement, which may be anything.
    if greater != "0":
        yield lesser, remark, claim.lesser
    if lesser != "0":
        yield re.sub(r" +\([^()]*\)$", "", greater), remark, claim.greater


def _without_remark(text: str) -> tuple[str, str]:
    """What comes before and after the first comma outside of brackets, <d, H d> among them."""
    for place in (found.start() for found in re.finditer(", ", text)):
        before = text[:place]
        closed = all(before.count(a) == before.count(b) for a, b in ("()", "[]", "{}"))
        if closed and not re.search(r"<\w*$", before):
            return before, text[place + 2 :]
    return text, ""


def side_faults(name: str, side: object) -> Iterator[str]:
    """Whether values are possible for what is named so."""
    values = _array(side)
    values = values[~np.isnan(values)]
    if _NUMBER.fullmatch(name):
        number, _, divisor = name.partition("/")
        if not np.all(values == float(number) / float(divisor or 1)):
            yield f"{name} is shown as {values}"
    signed = SIGNED.search(name) or re.search(r"(^| )- ?", _without_brackets(name))
    if not signed and np.any(values < 0):
        yield f"{name} must not be negative, is {values.min()}"
    if re.match(r"P\(|p-value", name) and np.any((values < 0) | (values > 1)):
        yield f"{name} must be a probability, is {values}"
    if name == "nu^" and np.any(np.abs(values) > 1 + 1e-12):
        yield f"{name} must be a cosine, is {values}"


def text_faults(claim: Claim, assumed: bool) -> Iterator[str]:
    """Whether what is shown says what was compared, and why it was decided so."""
    text, difference = claim.describe_sides(clearly=assumed), claim.to_dict()["margin"]
    if np.isnan(claim.margin):
        if claim.holds or claim.holds_clearly:
            yield "not a number, and yet it holds"
        if "not a number" not in text:
            yield f"{text!r} does not say that it is not a number"
        return
    needs_tolerance = claim.margin < 0 or (claim.relation == "<" and claim.margin <= 0)
    if claim.holds and needs_tolerance and "within" not in text:
        yield f"{text!r} needs a tolerance, and does not show it"
    if difference == 0 and claim.relation != "<" and "equal" not in text:
        yield f"{text!r} does not say that both are equal"
    shown = _SHOWN.match(text)
    if claim.relation != "=":
        lesser, greater = (_number(shown.group(place)) for place in (1, 3))
        if claim.holds and lesser > greater and "within" not in text:
            yield f"{text!r} contradicts itself"
        if claim.fails and lesser < greater:
            yield f"{text!r} shows a place where it holds"


def _number(text: str) -> Decimal:
    """What is shown, of any size."""
    if text.startswith("10^"):
        return _ANY_SIZE.create_decimal(f"1e{int(float(text[3:]))}")
    return _ANY_SIZE.create_decimal(text)


def _array(side: object) -> np.ndarray:
    if isinstance(side, Magnitude):
        return np.asarray(np.exp(np.clip(side.log, -700, 700)))
    return np.asarray(side, float)


def _same(one: object, other: object) -> bool:
    # The same number may be computed twice, in another order.
    return np.allclose(_array(one), _array(other), rtol=1e-9, atol=1e-300, equal_nan=True)


def _without_brackets(name: str) -> str:
    """Without what stands in brackets or between the bars of a norm."""
    before = ""
    while before != name:
        before, name = name, re.sub(r"\([^()]*\)|\{[^{}]*\}|\|[^|]*\|", "", name)
    return name
