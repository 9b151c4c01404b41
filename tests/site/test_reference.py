"""The reference has every public name, and its examples give what stands there."""

import doctest
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE, REFERENCE = ROOT / "docs" / "site", ROOT / "docs" / "reference"
NEEDED = {"proofs": "flint", "top": "flint", "torch": "torch"}
PAGES = sorted(path.stem for path in REFERENCE.glob("*.md") if path.stem != "index")


@pytest.fixture
def pages(monkeypatch):
    """The module that writes the reference."""
    monkeypatch.syspath_prepend(str(SITE))
    import reference_pages

    return reference_pages


def test_every_public_name_has_an_example(pages):
    assert sorted(pages.modules()) == PAGES
    for name, module in pages.modules().items():
        told = pages.sections((REFERENCE / f"{name}.md").read_text("utf-8"))
        headed = [each for names in told for each in names]
        assert sorted(headed) == sorted(pages.public(module)), f"docs/reference/{name}.md"
        for names, example in told.items():
            assert ">>> " in example, f"docs/reference/{name}.md: {names} need an example"


def test_every_page_is_listed():
    listed = (REFERENCE / "index.md").read_text("utf-8").split("```{toctree}")[1].split()
    assert sorted(set(listed) & set(PAGES)) == PAGES


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("page", PAGES)
def test_examples_give_what_stands_there(page):
    if page in NEEDED:
        pytest.importorskip(NEEDED[page], reason=f"needs pip install '.[{NEEDED[page]}]'")
    text = (REFERENCE / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"```pycon\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    names: dict = {}
    for number, block in enumerate(blocks):
        example = parser.get_doctest(block, names, f"{page}[{number}]", page, 0)
        runner.run(example, clear_globs=False)
        names = example.globs
    assert runner.failures == 0, f"{page}: see above"


def test_docstrings_become_markdown(pages):
    told = "A_j is <x>, see `a_b`.\n\n    W_2 W_1\n\nArgs:\n    x: one.\n    y: two\n        lines."
    text = pages.described(told)
    assert "A\\_j is \\<x\\>, see `a_b`." in text
    assert "```text\nW_2 W_1\n```" in text
    assert "- `y`: two lines." in text
    assert sys.modules["reference_pages"] is pages
