"""One table of rows behind every rendering: plain text, the terminal, the page."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import thalweg as tw
from thalweg.certificates import Case, Certificate, Claim, Question, requirement
from thalweg.certificates.magnitude import Magnitude
from thalweg.certificates.overview import margin_share, titled_tables
from thalweg.certificates.text import columns, table
from thalweg.cli import terminal

WORDS = st.text("abc [/b]", max_size=60)


@pytest.fixture(scope="module")
def found():
    """Least squares with two layers, of which several theorems speak."""
    x = 2 * np.vstack([np.eye(3), -np.eye(3)])
    objective = tw.Objective(
        tw.LinearNetwork([3, 3, 1]), tw.Regression(x, x @ np.array([1.0, 0.0, 0.5]))
    )
    weights = tw.initialisation.balanced_from(objective.network, [[0.1, 0.1, 0.1]])
    return tw.theorems.certify_case(Case(objective, weights, target_loss=0.01))


def test_a_table_is_aligned_and_leaves_out_empty_columns():
    rows = [{"bound": "1.5", "note": "", "source": "a"}, {"bound": "10", "note": "", "source": "b"}]
    assert columns(rows) == ["bound", "source"]
    assert table(rows).splitlines() == ["bound  source", "-----  ------", "  1.5  a", "   10  b"]
    assert table([]) == ""


@given(st.lists(st.fixed_dictionaries({"one": WORDS, "two": WORDS, "three": WORDS}), max_size=4))
def test_every_word_of_a_table_is_there_and_no_line_is_wider_than_a_page(rows):
    text = table(rows)
    assert all(len(line) <= 110 for line in text.splitlines())
    body = "".join("".join(text.splitlines()[2:]).split())
    for row in rows:
        if len(rows) == 1:  # of several rows the cells' lines are mixed
            assert sorted(body) == sorted("".join("".join(row.values()).split()))


def test_every_answer_and_every_reason_is_in_the_overview(found):
    told = found.overview()
    assert told["checked"] == len(found)
    assert told["applying"] == len(found.applying) > 0
    asked = [each["question"] for each in told["answers"]]
    assert asked == [each.phrase for each in Question if found.answers(each)]
    for each in told["answers"]:
        question = next(one for one in Question if one.phrase == each["question"])
        sources = [owner.reference for _, owner in found.answers(question)]
        assert [row["source"] for row in each["rows"]] == sources
    refused = sum(
        len(paper.split(": ")[1].split(", "))
        for row in told["refused"]
        for paper in row["source"].split("; ")
    )
    assert refused == len(found) - len(found.applying)


def test_the_terminal_and_the_text_show_the_same_cells(found):
    page = io.StringIO()
    Console(file=page, width=400, markup=False).print(terminal.guarantees(found.overview()))
    shown, text = page.getvalue(), str(found)
    for title, rows in titled_tables(found.overview()):
        assert f"{title[0].upper()}{title[1:]}" in shown
        assert title in text
        for row in rows:
            told = {name: cell for name, cell in row.items() if row.get("values") != "no"}
            for cell in (*told.values(), row["source"]):  # "no" is told by its place alone
                assert cell in shown
            for cell in row.values():
                assert cell.split(" ")[0] in text


def test_guarantees_fit_in_eighty_columns_without_shreds(found):
    page = io.StringIO()
    Console(file=page, width=80, markup=False).print(terminal.guarantees(found.overview()))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    # Words are not broken inside, so what is said can be found again when lines are joined.
    joined = " ".join(" ".join(lines).split())
    for each in found.overview()["answers"]:
        for row in each["rows"]:
            assert row["condition"] in joined
            assert row["statement"] in joined


def test_a_certificate_prints_its_claims_with_their_margins():
    claims = (requirement("there is a target", True), Claim("|w| <= 1", 0.25, 1.0))
    text = str(Certificate("paper:thm", "A title", claims, (Claim("|w| <= 2", 3.0, 2.0),)))
    assert text.splitlines()[0] == "paper:thm  A title: violated"
    assert "assumption  |w| <= 1           0.25 <= 1  +0.75" in text
    assert "conclusion  |w| <= 2           3 <= 2     -1" in text


@pytest.mark.parametrize(
    ("lesser", "greater", "share"),
    [
        (0.25, 1.0, 0.75),
        (1.0, 1.0, 0.0),
        (1.0, 0.25, -0.75),
        (-3.0, 1.0, 1.0),
        (1e-300, 1e300, 1.0),
        (Magnitude(-1000.0), Magnitude(1000.0), 1.0),
        (Magnitude(2.0), Magnitude(2.0), 0.0),
        (Magnitude(np.log(4.0)), 1.0, -0.75),
        (Magnitude(1000.0), Magnitude(-1000.0), -1.0),
    ],
)
def test_the_share_of_a_margin_is_that_of_the_larger_side(lesser, greater, share):
    assert margin_share(Claim("a <= b", lesser, greater)) == pytest.approx(share, abs=1e-15)


def test_a_margin_that_is_no_number_has_no_share():
    assert np.isnan(margin_share(Claim("a <= b", np.nan, 1.0)))


def test_the_assumption_that_decides_is_the_narrowest(found):
    for question in Question:
        for _, owner in found.answers(question):
            rows = next(
                each["rows"]
                for each in found.overview()["answers"]
                if each["question"] == question.phrase
            )
            told = next(row for row in rows if row["source"] == owner.reference)
            claims = [one for one in owner.assumptions if not one.whether and one.margin != 0]
            assert bool(told["share"]) == bool(claims)
            if claims:
                least = min(margin_share(one) for one in claims)
                assert float(told["share"]) == pytest.approx(least, rel=5e-3)
