"""The checker, a file that stands alone, refuses whatever is not a proof."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import InputError
from thalweg.tubes import checker
from thalweg.tubes.proof import Proof


def verdict_on(content, folder):
    """The checker's verdict, the digest being made to fit."""
    path = folder / "tampered.json"
    path.write_text(json.dumps({**content, "sha256": checker.digest(content)}))
    return checker.check(path)


def leaves(node, path=()):
    """The paths to all numbers of a content."""
    if isinstance(node, str):
        return [path] if path[-1] not in ("format", "kind") else []
    if node is None or isinstance(node, int):
        return []
    items = node.items() if isinstance(node, dict) else enumerate(node)
    return [leaf for key, child in items for leaf in leaves(child, (*path, key))]


def changed(content, path, change):
    tampered = copy.deepcopy(content)
    node = tampered
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = change(node[path[-1]])
    return tampered


def times(factor):
    """Multiply a number, or make a zero different."""

    def change(text):
        number = float.fromhex(text)
        return (number * factor if number else factor - 1).hex()

    return change


def test_every_number_matters(small, folder):
    """A change of any number by a thousandth, with a new digest, leaves something unproven."""
    paths = [path for path in leaves(small.content) if path[0] != "hints"]
    assert len(paths) > 100
    # A larger upper bound, a smaller lower bound and the hint at the moment's norm claim no more;
    # the radius of the last step is not used if it is smaller than what is claimed, and so on: the
    # direction that claims more is the one tried.
    down = {"upper", "radii"}
    for path in paths:
        if path[:2] == ("loss", "norm"):
            continue
        factor = 0.999 if path[0] in down else 1.001
        verdict = verdict_on(changed(small.content, path, times(factor)), folder)
        assert not verdict.accepted, path
        assert verdict.reason.endswith("."), verdict


@pytest.mark.parametrize("factor", [1.001, 0.999, 0.0, 1e150])
def test_hints_are_never_trusted(small, folder, factor):
    """With a wrong hint the same claims are either proven all the same, or refused."""
    paths = [path for path in leaves(small.content) if path[0] == "hints" or path[-1] == "norm"]
    verdicts = [verdict_on(changed(small.content, path, times(factor)), folder) for path in paths]
    assert not all(verdict.accepted for verdict in verdicts)
    # Nothing stronger is ever accepted: the claims are those of the true proof.
    assert {v.largest_upper for v in verdicts if v.accepted} <= {small.upper.max()}


def test_a_guess_that_the_flow_may_leave_is_refused(small, folder):
    for k in range(3):
        verdict = verdict_on(changed(small.content, ("hints", k, "within"), times(0.1)), folder)
        assert f"in step {k} the flow is not proven to stay" in verdict.reason


def test_a_last_unit_in_a_claim_is_seen(small, folder):
    """The bounds are rounded outwards to the next double, so that one unit less is refused."""

    def next_below(text):
        return np.nextafter(float.fromhex(text), 0).item().hex()

    def next_above(text):
        return np.nextafter(float.fromhex(text), 1).item().hex()

    for name, change in (("upper", next_below), ("radii", next_below), ("lower", next_above)):
        for k in range(4):
            if name == "lower" and small.lower[k] == 0:
                continue
            assert not verdict_on(changed(small.content, (name, k), change), folder).accepted


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_is_refused(small_file, position, flip):
    raw = bytearray(small_file.read_bytes()[:-1])
    raw[position % len(raw)] ^= flip
    path = small_file.parent / "byte.json"
    path.write_bytes(bytes(raw))
    assert not checker.check(path).accepted


NUMBER = "must be a finite number as written by float.hex"
HOSTILE = {
    "nan radius": (("radii", 1), "nan", NUMBER),
    "infinite guess": (("hints", 0, "within"), "inf", NUMBER),
    "zero guess": (("hints", 0, "within"), "0x0.0p+0", "must be positive"),
    "decimal number": (("upper", 0), "1e400", NUMBER),
    "overflowing number": (("upper", 0), "0x1.0p+5000", NUMBER),
    "not canonical": (("upper", 0), " 0x1.0p+0", NUMBER),
    "plain number": (("upper", 0), 1, NUMBER),
    "truth": (("upper", 0), True, NUMBER),
    "a list for a number": (("scale",), ["0x1.0p+0"], "nothing else"),
    "negative radius": (("radii", 0), (-1.0).hex(), "at least 0"),
    "negative rate": (("learning_rate",), (-0.01).hex(), "must be positive"),
    "no rate": (("learning_rate",), "0x0.0p+0", "must be positive"),
    "negative decay": (("weight_decay",), (-0.01).hex(), "at least 0"),
    "negative scale": (("loss", "scale"), (-1.0).hex(), "must be positive"),
    "negative start": (("start_distance",), (-1.0).hex(), "at least 0"),
    "no steps": (("hints",), [], "hints must be a list"),
    "steps are no list": (("hints",), {}, "hints must be a list"),
    "a step is no dictionary": (("hints", 1), [], "must hold within"),
    "no layers": (("network", "widths"), [2], "at least two"),
    "no widths": (("network", "widths"), [], "widths must be a list"),
    "true widths": (("network", "widths"), [3, True, 2], "whole numbers"),
    "negative widths": (("network", "widths"), [-3, 2, -2], "whole numbers"),
    "other widths": (("network", "widths"), [3, 1, 2], "list of 5 entries"),
    "enormous widths": (("network", "widths"), [10**4000, 10**4000, 2], "."),
    "short point": (("points", 2), ["0x0.0p+0"], "list of 10 entries"),
    "no readout columns": (("network", "readout"), [[], []], "one or more"),
    "ragged readout": (("network", "readout"), [["0x0.0p+0"], []], "list of 1 entries"),
    "no samples": (("loss", "inputs"), [], "one or more"),
    "fewer targets": (("loss", "targets"), [["0x0.0p+0"] * 2], "list of 4 entries"),
    "other loss": (("loss", "kind"), "logistic", "target or regression"),
    "no loss": (("loss",), None, "nothing else"),
    "other format": (("format",), "thalweg proof 2", "format"),
}


@pytest.mark.parametrize(("path", "value", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused(small, folder, path, value, reason):
    verdict = verdict_on(changed_or_new(small.content, path, value), folder)
    assert not verdict.accepted
    assert reason in verdict.reason
    assert str(verdict).startswith("rejected: ")
    assert "\n" not in str(verdict)
    # And nothing is told of what was not proven.
    assert (verdict.network, verdict.weights, verdict.steps, verdict.time) == ("", 0, 0, 0.0)
    assert verdict.largest_upper == verdict.between == verdict.largest_jump == np.inf


def changed_or_new(content, path, value):
    tampered = copy.deepcopy(content)
    node = tampered
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return tampered


@pytest.mark.parametrize("name", ["points", "corrections", "radii", "lower", "upper", "hints"])
@pytest.mark.parametrize("edit", ["missing", "extra", "swapped", "absent"])
def test_steps_are_complete_and_in_order(small, folder, name, edit):
    content = copy.deepcopy(small.content)
    rows = content[name]
    if edit == "missing":
        del rows[2]
    elif edit == "extra":
        rows.append(rows[-1])
    elif edit == "swapped":
        rows[0], rows[-1] = rows[-1], rows[0]
    else:
        del content[name]
    assert content != small.content
    assert not verdict_on(content, folder).accepted


TEXTS = {
    "empty": b"",
    "not JSON": b"proof",
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "a number": b"1",
    "NaN": b'{"radii": NaN}',
    "a float": b'{"radii": 1e400}',
    "twice": b'{"format": "thalweg proof 1", "format": "thalweg proof 1"}',
    "deep": b"[" * 100_000,
    "long integer": b'{"widths": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("raw", TEXTS.values(), ids=TEXTS)
def test_what_is_no_proof_is_refused(raw, folder):
    path = folder / "text.json"
    path.write_bytes(raw)
    verdict = checker.check(path)
    assert not verdict.accepted
    assert verdict.reason
    with pytest.raises(InputError, match="holds no proof"):
        Proof.read(path)


def test_a_key_that_appears_twice_is_refused(small_file, folder):
    text = small_file.read_text()
    path = folder / "twice.json"
    path.write_text(text.replace('"weight_decay":', '"weight_decay":"0x0.0p+0","weight_decay":', 1))
    assert "twice" in checker.check(path).reason


def test_numbers_of_any_size_are_refused_in_peace(small, folder):
    """Balls do not overflow, and what doubles make of them is no more than a hint."""
    no_more = ("hints", "upper", "loss")  # where a huge number need not claim anything
    for path in leaves(small.content):
        if path[0] in ("points", "corrections") and path[1:] > (1, 1):
            continue
        verdict = verdict_on(changed_or_new(small.content, path, (1e308).hex()), folder)
        assert not verdict.accepted or path[0] in no_more, path


def test_the_checker_stands_alone(small_file, folder):
    """A copy runs without this package, and imports nothing but FLINT beyond the library."""
    alone = folder / "alone.py"
    source = Path(checker.__file__).read_text()
    spy = "print(sorted({n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    alone.write_text(source.replace("sys.exit(main(", f"{spy}\n    sys.exit(main("))
    done = subprocess.run(
        [sys.executable, "-I", alone, small_file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for other in ("thalweg", "numpy", "jax", "scipy"):
        assert f"'{other}'" not in done.stdout
    assert "'flint'" in done.stdout
    assert "proven: linear network 3-2-2" in done.stdout


def test_the_exit_codes(small, small_file, folder, capsys):
    assert checker.main([str(small_file)]) == 0
    verdict_on(changed_or_new(small.content, ("radii", 1), "0x0.0p+0"), folder)
    assert checker.main([str(folder / "tampered.json")]) == 1
    assert checker.main([str(folder / "nowhere.json")]) == 2
    assert checker.main([]) == 2
    assert "rejected: the radius after step 0" in capsys.readouterr().out


def test_what_is_printed_is_proven_too():
    """Bounds are rounded up; what is assumed is not rounded."""
    said = str(
        checker.Checked(
            True, "", time=0.99999999, start_distance=0.0999999999, largest_upper=0.12345649,
            ratio=1.00001, between=0.2, largest_jump=1.49e-16,
        )
    )  # fmt: skip
    for words in ("time 0.99999999\n", "within 0.0999999999 of", "within 0.123457 of",
                  "(1.001 times", "up to 2e-16"):  # fmt: skip
        assert words in said
