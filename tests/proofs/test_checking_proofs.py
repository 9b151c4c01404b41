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
from proof_problems import Plain

from thalweg import InputError
from thalweg.proofs import Proof, checker, prove


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


# What says what flows, from where and how fast: nothing of it may change under a claim.
FIXED = ("network", "loss", "weight_decay", "start")


def claims_more(path):
    """The factor that makes a number claim more, or something else."""
    if "lower" in path or path[0] in FIXED or path[-1] == "learning_rate" or path[-1] == 0:
        return 1.001  # a radius or an upper bound at the start, too, is what is assumed there
    return 0.999


@pytest.mark.parametrize("which", ["small", "classified"])
def test_every_number_matters(which, request, folder):
    """A change of any number by a thousandth, with a new digest, leaves something unproven."""
    content = request.getfixturevalue(which).content
    paths = [path for path in leaves(content) if path[0] != "times"]
    assert len(paths) > 25
    for path in paths:
        if path[-2:] == ("upper", 0):  # which may be larger than what is assumed
            continue
        if "lower" in path and zero(content, path):
            continue
        verdict = verdict_on(changed(content, path, times(claims_more(path))), folder)
        assert not verdict.accepted, path
        assert verdict.reason.endswith("."), verdict


def zero(content, path):
    """Whether a lower bound is zero, as that of the start."""
    for key in path:
        content = content[key]
    return float.fromhex(content) == 0


def test_a_lower_bound_at_the_start_is_refused(small, folder):
    path = ("runs", 0, "lower", 0)
    verdict = verdict_on(changed(small.content, path, lambda _: (1e-30).hex()), folder)
    assert "the lower bound at step 0 with learning rate 0.02 is larger" in verdict.reason


@pytest.mark.parametrize("factor", [1.1, 1.001, 0.999, 0.5, 0.0])
def test_the_partition_of_time_is_never_trusted(small, folder, factor):
    """Other times, orders and precisions prove the same claims, or nothing."""
    for place in range(1, len(small.content["times"])):
        path = ("times", place)
        verdict = verdict_on(changed(small.content, path, times(factor)), folder)
        if verdict.accepted:
            assert verdict.runs[0].largest_upper == small.runs[0].upper.max()
    outlasted = verdict_on(changed(small.content, ("times", -1), times(0.9)), folder)
    assert "outlasts the flow" in outlasted.reason


@pytest.mark.parametrize("order", [1, 2, 4, 28, 64, 128])
def test_the_order_is_never_trusted(small, folder, order):
    """A low order leaves a large defect, which the radii do not cover; a high one does not."""
    verdict = verdict_on(changed_or_new(small.content, ("order",), order), folder)
    assert verdict.accepted == (order >= 28)


@pytest.mark.parametrize("path", [("precision",), ("runs", 0, "precision")])
def test_bits_are_never_trusted(folder, path):
    """Balls that are too wide prove less than is claimed."""
    content = prove(Plain([3, 2, 2]).run(steps=20)).content
    assert verdict_on(content, folder).accepted
    assert not verdict_on(changed_or_new(content, path, 64), folder).accepted


def test_a_last_unit_in_a_claim_is_seen(small, folder):
    """The bounds are rounded outwards to the next double, so that one unit less is refused."""

    def next_below(text):
        return np.nextafter(float.fromhex(text), 0).item().hex()

    def next_above(text):
        return np.nextafter(float.fromhex(text), 1).item().hex()

    for name, change in (("upper", next_below), ("lower", next_above)):
        for k in range(4):
            if name == "lower" and small.runs[0].lower[k] == 0:
                continue
            path = ("runs", 0, name, k)
            assert not verdict_on(changed(small.content, path, change), folder).accepted


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_byte_is_refused(small_file, position, flip):
    raw = bytearray(small_file.read_bytes()[:-1])
    raw[position % len(raw)] ^= flip
    path = small_file.parent / "byte.json"
    path.write_bytes(bytes(raw))
    assert not checker.check(path).accepted


NUMBER = "must be a finite number as written by float.hex"
RUN = ("runs", 0)
HOSTILE = {
    "nan radius": (("radii", 1), "nan", NUMBER),
    "infinite bound": ((*RUN, "upper", 0), "inf", NUMBER),
    "decimal number": ((*RUN, "upper", 0), "1e400", NUMBER),
    "overflowing number": ((*RUN, "upper", 0), "0x1.0p+5000", NUMBER),
    "not canonical": ((*RUN, "upper", 0), " 0x1.0p+0", NUMBER),
    "plain number": ((*RUN, "upper", 0), 1, NUMBER),
    "truth": ((*RUN, "upper", 0), True, NUMBER),
    "a list for a number": (("scale",), ["0x1.0p+0"], "nothing else"),
    "negative radius": (("radii", 0), (-1.0).hex(), "at least 0"),
    "negative rate": ((*RUN, "learning_rate"), (-0.01).hex(), "must be positive"),
    "no rate": ((*RUN, "learning_rate"), "0x0.0p+0", "must be positive"),
    "negative decay": (("weight_decay",), (-0.01).hex(), "at least 0"),
    "negative scale": (("loss", "scale"), (-1.0).hex(), "must be positive"),
    "no times": (("times",), [], "times must be a list"),
    "one time": (("times",), ["0x0.0p+0"], "must begin with 0 and increase"),
    "a later begin": (("times", 0), (1e-9).hex(), "must begin with 0 and increase"),
    "no runs": (("runs",), [], "runs must be a list"),
    "runs are no list": (("runs",), {}, "runs must be a list"),
    "a run is no dictionary": (("runs", 1), [], "must hold learning_rate"),
    "no order": (("order",), 0, "whole number from 1 to 128"),
    "enormous order": (("order",), 10**4000, "whole number from 1 to 128"),
    "true order": (("order",), True, "whole number from 1 to 128"),
    "few bits": (("precision",), 1, "whole number from 64 to 1024"),
    "enormous bits": ((*RUN, "precision"), 10**12, "whole number from 64 to 32768"),
    "no layers": (("network", "widths"), [2], "at least two"),
    "no widths": (("network", "widths"), [], "widths must be a list"),
    "true widths": (("network", "widths"), [3, True, 2], "whole numbers"),
    "negative widths": (("network", "widths"), [-3, 2, -2], "whole numbers"),
    "other widths": (("network", "widths"), [3, 1, 2], "list of 5 entries"),
    "enormous widths": (("network", "widths"), [10**4000, 10**4000, 2], "."),
    "short start": (("start",), ["0x0.0p+0"], "list of 10 entries"),
    "no readout columns": (("network", "readout"), [[], []], "one or more"),
    "ragged readout": (("network", "readout"), [["0x0.0p+0"], []], "list of 1 entries"),
    "no samples": (("loss", "inputs"), [], "one or more"),
    "fewer targets": (("loss", "targets"), [["0x0.0p+0"] * 2], "list of 4 entries"),
    "other loss": (("loss", "kind"), "logistic", "target, regression, cross-entropy"),
    "a loss of no kind": (("loss", "kind"), [], "target, regression, cross-entropy"),
    "the parts of another loss": (("loss", "kind"), "cross-entropy", "inputs, labels and nothing"),
    "no loss": (("loss",), None, "target, regression, cross-entropy"),
    "other format": (("format",), "thalweg proof 3", "format"),
    "older format": (("format",), "thalweg proof 1", "of the older kind"),
    "a format of no kind": (("format",), [], "format"),
}


@pytest.mark.parametrize(("path", "value", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_are_refused(small, folder, path, value, reason):
    verdict = verdict_on(changed_or_new(small.content, path, value), folder)
    assert not verdict.accepted
    assert reason in verdict.reason
    assert str(verdict).startswith("rejected: ")
    assert "\n" not in str(verdict)
    # And nothing is told of what was not proven.
    assert verdict == checker.Checked(False, verdict.reason)
    assert (verdict.weights, verdict.time, verdict.radius, verdict.runs) == (0, 0.0, np.inf, ())


def test_labels_are_classes(classified, folder):
    for label in (-1, 3, True, "0x0.0p+0"):
        content = changed_or_new(classified.content, ("loss", "labels", 1), label)
        assert "labels[1] must be a whole number from 0 to 2" in verdict_on(content, folder).reason


def changed_or_new(content, path, value):
    tampered = copy.deepcopy(content)
    node = tampered
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return tampered


@pytest.mark.parametrize("name", ["times", "radii", "start", "lower", "upper"])
@pytest.mark.parametrize("edit", ["missing", "extra", "swapped", "absent"])
def test_lists_are_complete_and_in_order(small, folder, name, edit):
    content = copy.deepcopy(small.content)
    holder = content["runs"][0] if name in ("lower", "upper") else content
    rows = holder[name]
    if edit == "missing":
        del rows[1]
    elif edit == "extra":
        rows.append(rows[-1])
    elif edit == "swapped":
        rows[0], rows[-1] = rows[-1], rows[0]
    else:
        del holder[name]
    assert content != small.content
    assert not verdict_on(content, folder).accepted


def test_fewer_steps_claim_less(small, folder):
    """A run may end sooner, and the flow go on."""
    content = copy.deepcopy(small.content)
    for name in ("lower", "upper"):
        del content["runs"][0][name][-1]
    assert verdict_on(content, folder).accepted


TEXTS = {
    "empty": b"",
    "not JSON": b"proof",
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "a number": b"1",
    "NaN": b'{"radii": NaN}',
    "a float": b'{"radii": 1e400}',
    "twice": b'{"format": "thalweg proof 2", "format": "thalweg proof 2"}',
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


@pytest.mark.parametrize("which", ["small", "classified"])
def test_numbers_of_any_size_are_refused_in_peace(which, request, folder):
    """Balls do not overflow; a larger upper bound claims no more."""
    content = request.getfixturevalue(which).content
    for path in leaves(content):
        verdict = verdict_on(changed_or_new(content, path, (1e308).hex()), folder)
        assert not verdict.accepted or "upper" in path, path


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
    assert "rejected: the radius at times[1] is smaller" in capsys.readouterr().out


def test_what_is_printed_is_proven_too():
    """Upper bounds are rounded up, lower ones down; what is assumed is not rounded."""
    run = checker.CheckedRun(0.1, 3, 0.3, 0.123456789012, 0.1234567891234, 1.00000000001, 0.9)
    said = str(
        checker.Checked(
            True, "", time=0.99999999, start_distance=0.0999999999, radius=1.01e-9, runs=(run,)
        )
    )
    for words in (
        "to time 0.999999\n",
        "within 0.0999999999 of",
        "within 1.1e-09 of",
        "between 0.1234567891 and 0.1234567891",
        "between 0.9 and 1.000000001",
    ):
        assert words in said


def test_a_step_that_may_lie_on_either_side_of_a_node_is_refused(small_file, monkeypatch):
    """Its distance would be taken to the wrong interval's polynomial."""
    assert checker.check(small_file).accepted
    blurred = property(lambda run: (run.steps + 1) * run.rate + checker.arb(0, 1e3))
    monkeypatch.setattr(checker.Descent, "next_time", blurred)
    assert "more bits are needed to tell the time of step 1" in checker.check(small_file).reason
