"""A case: something that is given to the program, what came of it, and what is wrong with that.

Four faults are looked for: a traceback (any exception but `InputError`), an abort, a hang before
the first word, and a false statement. Aborts and hangs are seen from outside, by `driving`.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

LONGEST_SENTENCE = 1200
"""What is echoed in an error must not bury it."""

_NO_NUMBER = re.compile(r"(?<![\w.\-/])[-+]?(nan|inf|infinity)(?![\w.\-/])", re.IGNORECASE)
_INFIMUM = re.compile(
    r"\binf (\(|over\b)|(?<=\"margin\": )\"inf\""
)  # and the ratio of a side that is 0
_INNARDS = re.compile(r"\bat 0x[0-9a-f]{6}|\bArray\(|\barray\(\[|Traced<|<class '|<function ")


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        code: the exit code of a command; 0 where a function returned.
        out: what was printed.
        err: what was printed on the error stream, or the sentence of an `InputError`.
        trace: the traceback of any other exception.
        found: more that is wrong, from oracles of the case's own.
    """

    code: int | None = None
    out: str = ""
    err: str = ""
    trace: str = ""
    found: Sequence[str] = ()


@dataclass(frozen=True)
class Case:
    """Something to be tried.

    Attributes:
        what: all of it in a text, so that a person can do it again.
        perform: does it, in a folder of its own; exceptions are the worker's.
        needs: things of the world that lie in the folder.
        files: and others, by name.
        judge: what is wrong with the outcome, besides what is wrong for all.
    """

    what: str
    perform: Callable[[], Outcome]
    needs: Sequence[str] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    judge: Callable[[Outcome], list[str]] = lambda outcome: []


def faults(case: Case, outcome: Outcome) -> list[str]:
    """All that is wrong, a line each; the first word is the kind."""
    found = list(outcome.found)
    if outcome.trace:
        return [*found, f"traceback: {outcome.trace.strip().splitlines()[-1][:300]}"]
    if "Traceback (most recent" in outcome.err + outcome.out:
        found.append("traceback: printed")
    if "Exception ignored" in outcome.err:
        found.append("traceback: of an exception that was ignored")
    return [*found, *case.judge(outcome)]


def faults_of_command(arguments: Sequence[str], outcome: Outcome) -> list[str]:
    """What is wrong with what a command said, whatever it was asked."""
    if "Warning: " in outcome.err:
        return [f"warning: {outcome.err.partition('Warning: ')[2][:200]}"]
    match outcome.code:
        case 0:
            return _of_results(arguments, outcome.out)
        case 1:
            return _of_verdicts(arguments, outcome)
        case 2:
            return _of_refusal(arguments, outcome.err)
        case _:
            return [f"exit: code {outcome.code}, which no command has"]


def of_sentence(sentence: str) -> list[str]:
    """What is wrong with a sentence for bad input."""
    found = []
    if len(sentence) > LONGEST_SENTENCE:
        found.append(f"sentence: {len(sentence)} characters long: {sentence[:100]}...")
    if not sentence.strip():
        found.append("sentence: empty")
    elif sentence.strip()[-1] not in ".?)":
        found.append(f"sentence: without an end: ...{sentence.strip()[-80:]}")
    if match := _INNARDS.search(sentence):
        found.append(f"sentence: shows {match[0]!r}: {sentence[:200]}")
    return found


def _of_refusal(arguments: Sequence[str], err: str) -> list[str]:
    _, found, sentence = err.rpartition("error: ")
    if found:
        return of_sentence(sentence)
    if "Usage: " in err or "Error" in err or not arguments:  # the parser's own
        return [] if len(err) < 4 * LONGEST_SENTENCE else ["sentence: a usage error without end"]
    return [f"sentence: exit code 2 without one: {err[-200:]}"]


def _of_verdicts(arguments: Sequence[str], outcome: Outcome) -> list[str]:
    if arguments[:1] == ["check"] and "rejected" in outcome.out + outcome.err:
        return []
    if arguments[:1] == ["check"] and '"accepted": false' in outcome.out:
        return []
    return [f"false: exit code 1, a verdict failed: {(outcome.err or outcome.out)[-300:]}"]


def _of_results(arguments: Sequence[str], out: str) -> list[str]:
    found = []
    told = _INFIMUM.sub("", out.replace(" ".join(arguments), ""))
    match = _NO_NUMBER.search(told)
    named = match and arguments[:2] == ["init", match[0]]  # a file may have this name
    if match and not named and "--help" not in arguments:
        place = told[max(0, match.start() - 100) : match.end() + 50]
        found.append(f"false: {match[0]!r} told as a result: {place!r}")
    if "--json" in arguments and "--help" not in arguments and out.strip():
        try:
            values = json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            return [*found, f"false: --json gave no JSON ({error}): {out[:200]!r}"]
        found += _of_runs(values)
    return found


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _of_runs(values: Any) -> list[str]:
    """A run that ended near the minimum did not diverge, and none ends below the minimum."""
    rows = values.get("runs") if isinstance(values, dict) else None
    found = []
    for row in rows if isinstance(rows, list) else []:
        excess, loss = row.get("excess"), row.get("loss")
        if excess is None:
            continue
        if row.get("phase") == "diverged" and excess < 1e-6:
            found.append(f"false: diverged, at an excess loss of {excess}")
        if excess < -1e-9 * max(1e-300, abs(loss or 0.0), math.ulp(0.0)):
            found.append(f"false: an excess loss of {excess}, at a loss of {loss}")
    return found
