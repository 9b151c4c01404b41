"""Every statement has its text, its mathematics compiles, and the counterexamples are true."""

import doctest
import re
from pathlib import Path

import pytest

from thalweg.theorems.catalogue import rows

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = {path.stem: path.read_text("utf-8") for path in (DOCS / "statements").glob("*.md")}
DISPLAYED = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.M | re.S)


@pytest.fixture
def site(monkeypatch):
    """The folder of the modules that build the site can be imported from."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))


def test_each_statement_has_a_text_with_mathematics_in_it(site):
    import statements_pages as pages

    texts = pages.texts()
    assert [row["statement"] for row in rows()] == list(texts)
    in_a_line = {"elkabetz2021:thm1", "elkabetz2021:prop26"}
    without = {name for name, text in texts.items() if not DISPLAYED.search(text.body)}
    assert without <= in_a_line
    assert all("$" in texts[name].body for name in in_a_line)
    for text in texts.values():
        for part in text.of("Correction"):
            assert "**Where.**" in part.body, text.id
            assert "**Corrected.**" in part.body, text.id


def test_what_a_text_must_begin_with(site):
    import statements_pages as pages

    with pytest.raises(ValueError, match="a line of its subject and questions"):
        pages._text("arora2019:thm1", "no such line")
    with pytest.raises(ValueError, match="has no title"):
        pages.title("arora2019:novelty")


@pytest.mark.parametrize("paper", sorted(TEXTS))
def test_formulas_compile(site, paper):
    pytest.importorskip("quickjs", reason="needs the `site` extra: pip install -e '.[site]'")
    import mathematics

    text = re.sub(r"```.*?```", "", TEXTS[paper], flags=re.DOTALL)
    shown = DISPLAYED.findall(text)
    inline = re.findall(r"\$([^$]+)\$", DISPLAYED.sub("", text))
    assert len(shown) + len(inline) > (100 if paper == "thalweg" else 300)
    for tex in shown:
        mathematics.render(tex, True)
    for tex in inline:
        mathematics.render(tex, False)


@pytest.mark.parametrize("paper", sorted(TEXTS))
def test_counterexamples_can_be_run_again(paper):
    blocks = re.findall(r"```pycon\n(.*?)```", TEXTS[paper], flags=re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        example = doctest.DocTestParser().get_doctest(block, {}, f"{paper}[{number}]", paper, 0)
        assert doctest.DocTestRunner().run(example).failed == 0
