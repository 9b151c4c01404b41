"""A function is told from what it was before an edit."""

import subprocess
import sys
import types
from functools import partial

import numpy as np
import pytest

from thalweg._fingerprint import fingerprint

SOURCE = """
SCALE = 2.0
def helper(x):
    return x + 1
def measure(objective, power=2):
    names = {"a", "b", "c"}
    return lambda weights: helper(weights) ** power if "a" in names else None
"""


def module(source=SOURCE):
    made = types.ModuleType("somewhere")
    exec(compile(source, "somewhere.py", "exec"), made.__dict__)
    return made


def test_the_same_source_is_the_same_function():
    assert fingerprint(module().measure) == fingerprint(module().measure)


@pytest.mark.parametrize(
    ("old", "new"),
    [("x + 1", "x + 2"), ("power=2", "power=3"), ('"c"', '"d"'), ("** power", "* power")],
)
def test_an_edit_is_seen_wherever_it_is(old, new):
    assert old in SOURCE
    edited = module(SOURCE.replace(old, new))
    assert fingerprint(edited.measure) != fingerprint(module().measure)


def test_what_is_closed_over_is_a_part_of_it():
    def made(value):
        return lambda weights: weights * value

    assert fingerprint(made(1.0)) == fingerprint(made(1.0))
    assert fingerprint(made(1.0)) != fingerprint(made(2.0))
    assert fingerprint(made(np.arange(3))) != fingerprint(made(np.arange(1, 4)))


def test_partial_functions_methods_and_objects():
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def __call__(self, weights):
            return self.scale * weights

        def measure(self, weights):
            return self.scale + weights

    for make in (lambda s: partial(max, s), Scaled, lambda s: Scaled(s).measure):
        assert fingerprint(make(1)) == fingerprint(make(1))
        assert fingerprint(make(1)) != fingerprint(make(2))


def test_it_does_not_depend_on_the_process():
    """Sets of texts are in another order in each."""
    lines = f"from thalweg._fingerprint import fingerprint\n{SOURCE}\n"
    found = {
        subprocess.run(
            [sys.executable, "-c", lines + "print(fingerprint(measure))"],
            env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(found) == 1


def test_functions_that_call_themselves_come_to_an_end():
    def recursive(n):
        return 1 if n == 0 else n * recursive(n - 1)

    assert fingerprint(recursive)
