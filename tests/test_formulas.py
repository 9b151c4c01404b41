"""Labels of claims set for a page."""

# ruff: noqa: RUF001 (Greek letters and signs are what this is about)

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.reports.formulas import formula

F2 = "<sub><i>F</i></sub><sup>2</sup>"


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("lambda_max(Sigma) <= 1e-12", "λ<sub>max</sub>(Σ) ≤ 10<sup>−12</sup>"),
        ("|W_j|_F^2 < 1.65e+03", "|<i>W</i><sub><i>j</i></sub>|" + F2 + " < 1.65·10<sup>3</sup>"),
        ("exp(-d u^{1 - 2/L}) <= -0.5", "exp(−<i>d</i> <i>u</i><sup>1 − 2/<i>L</i></sup>) ≤ −0.5"),
        ("a flow is given", "a flow is given"),
        ("e^(a t) <= a", "<i>e</i><sup><i>a</i> <i>t</i></sup> ≤ <i>a</i>"),
        ("the paper's bound: 3e-2 sqrt(eps)", "the paper's bound: 3·10<sup>−2</sup> √(ε)"),
    ],
)  # fmt: skip
def test_letters_powers_and_indices_are_set_and_words_stay(label, expected):
    assert unescape(formula(label)) == expected


@given(st.text("ab <>&\"'W_^{}()-+.=12e|", max_size=40))
def test_nothing_of_a_label_becomes_markup_but_italics_and_scripts(label):
    tags = set(re.findall(r"<[^>]*>", formula(label)))
    assert tags <= {f"<{slash}{tag}>" for slash in ("", "/") for tag in ("i", "sub", "sup")}


@given(st.text("abW <=>&", max_size=30))
def test_without_scripts_and_numbers_the_words_are_all_there(label):
    shown = unescape(re.sub("</?i>", "", formula(label)))
    assert shown == label.replace("<=", "≤").replace(">=", "≥")
