"""Every statement of the papers is in the package, and every theorem has its three tests."""

import importlib.util
import json
from pathlib import Path

import pytest

from thalweg.certificates import AbstractTheorem
from thalweg.theorems import STATEMENTS, registry
from thalweg.theorems.catalogue import KINDS

ROOT = Path(__file__).parents[2]


def listed() -> dict[str, str]:
    """The committed ids, each with the reason why it is left out, or nothing."""
    lines = Path(__file__).with_name("statements.txt").read_text("utf-8").splitlines()
    pairs = (line.partition("#") for line in lines if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, _, reason in pairs}


@pytest.fixture(scope="module")
def writer():
    """The script that writes the docs page and the list of tests."""
    spec = importlib.util.spec_from_file_location("writer", ROOT / "docs" / "write_theorems.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_statement_is_in_the_registry_or_left_out_with_a_reason():
    left_out = {name for name, reason in listed().items() if reason}
    assert all(reason.startswith("left out: ") for reason in listed().values() if reason)
    assert set(listed()) - left_out == set(registry)
    assert len(registry) == len(STATEMENTS)


def test_every_statement_has_a_meaning_and_code_that_is_its_own():
    for statement in STATEMENTS:
        assert statement.meaning.endswith("."), statement.id
        assert statement.code.__module__.startswith("thalweg."), statement.id
        code = statement.code
        if isinstance(code, type) and issubclass(code, AbstractTheorem):
            assert code.reference in registry, statement.id
            assert code.__doc__, statement.id
            assert statement.looseness, statement.id


def test_every_theorem_has_its_three_tests(writer):
    missing, every = [], writer.of_every_statement()
    for statement in STATEMENTS:
        tests = every[statement.id]
        theorem = isinstance(statement.code, type) and issubclass(statement.code, AbstractTheorem)
        wanted = ("holds", "tight", "fails") if theorem else ("value",)
        if not theorem and tests:  # any test of a definition or a start will do
            continue
        missing += [(statement.id, kind) for kind in wanted if kind not in tests]
    assert missing == []


def test_marks_name_statements_and_kinds_that_exist(writer):
    marks = writer.marks()
    assert set(marks) <= set(registry)
    assert {kind for kinds in marks.values() for kind in kinds} <= set(KINDS)


def test_the_written_lists_are_up_to_date(writer):
    """If this fails: make docs."""
    assert json.loads(writer.ROWS.read_text("utf-8")) == writer.rows()
    assert writer.PAGE.read_text("utf-8") == writer.page()
