"""The site builds without a warning, no link of it is broken, and it asks nothing of other hosts.

Needs the packages of the `site` extra; the tutorials are left out here, and run by their own tests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("furo", "myst_parser", "sphinx_copybutton", "sphinx_design", "quickjs"):
    pytest.importorskip(
        needed, reason="needs the packages of the `site` extra: pip install -e '.[site]'"
    )

SITE = Path(__file__).parents[2] / "docs" / "site"
PAGES = (
    "index", "start/report", "tutorials/edge-of-stability", "theory/flat-minima", "studies/index",
    "statements/arora2019/thm1", "statements/elkabetz2021/thm3", "statements/marion2024/thm2",
    "reference/tubes", "errata/marion2024",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site's pages."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(SITE / "build.py"), "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert "0 broken links" in done.stdout
    return out / "html"


@pytest.fixture(scope="module")
def tools():
    """The modules that build the site."""
    sys.path.insert(0, str(SITE))
    import links
    import mathematics
    import staging

    yield {"links": links, "mathematics": mathematics, "staging": staging}
    sys.path.remove(str(SITE))


def test_mathematics_is_set_when_the_site_is_built(built):
    page = (built / "quantities.html").read_text("utf-8")
    assert page.count('class="katex"') > 10
    assert "\\(" not in page.split("<article")[1]
    style = (built / "_static" / "katex.css").read_text("utf-8")
    assert style.count("data:font/woff2") == 20
    assert "url(fonts" not in style


def test_a_link_to_nowhere_is_found(tools, tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html">gone</a> <a href="#here">fine</a> <a href="#there">not</a>'
        '<img src="https://elsewhere.example/x.png"><a href="https://elsewhere.example">fine</a>',
        "utf-8",
    )
    found = tools["links"].broken(tmp_path)
    assert [line.split(": ", 1)[1] for line in found] == [
        "b.html is not there",
        "#there has no such anchor",
        "loads https://elsewhere.example/x.png from another host",
    ]


def test_a_formula_that_does_not_compile_is_refused(tools):
    with pytest.raises(tools["mathematics"].MathematicsError, match=r"nonsense"):
        tools["mathematics"].render(r"\nonsense{x}", True)


def test_signatures_link_to_other_libraries(built):
    page = (built / "reference" / "tubes.html").read_text("utf-8")
    assert 'href="https://docs.python.org/3/library/functions.html#float"' in page
    assert 'href="dynamics.html#thalweg.dynamics.Descent"' in page


def test_the_gallery_has_every_study_that_has_a_page(built):
    page = (built / "studies" / "index.html").read_text("utf-8")
    studies = [each.stem for each in (SITE.parent / "studies").glob("*.md")]
    assert studies
    for name in studies:
        assert f'<a class="card" href="{name}.html"><img src="../_images/{name}' in page, name


def test_a_page_that_nobody_has_listed_is_listed(tools, tmp_path):
    (tmp_path / "index.md").write_text("```{toctree}\nhow-to\n```\n", "utf-8")
    (tmp_path / "how-to.md").write_text("# How-to\n\n```{toctree}\nknown\n```\n", "utf-8")
    (tmp_path / "known.md").write_text("# Known\n", "utf-8")
    tools["staging"].adopt(tmp_path)
    assert "More" not in (tmp_path / "how-to.md").read_text("utf-8")
    (tmp_path / "new.md").write_text("# New\n", "utf-8")
    tools["staging"].adopt(tmp_path)
    assert (tmp_path / "how-to.md").read_text("utf-8").endswith("\nnew\n```\n")


# --- in a browser, opened from the folder ---------------------------------------------------------


@pytest.fixture(scope="module")
def page(browser):
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    yield opened
    opened.close()


@pytest.fixture
def asked(page):
    """Every address that is asked for during a test, but for those in the folder."""
    found = []

    def note(request):
        if not request.url.startswith(("file:", "data:")):
            found.append(request.url)

    page.on("request", note)
    yield found
    page.remove_listener("request", note)


def test_pages_ask_nobody_and_fit_a_telephone(built, page, asked):
    for name in PAGES:
        page.goto(f"file://{built}/{name}.html")
        width = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert width == 0, f"{name} is wider than the screen by {width}"
        broken = page.evaluate(
            "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        assert broken == [], name
    assert asked == []


def test_mathematics_has_its_fonts(built, page):
    page.goto(f"file://{built}/statements/arora2019/thm1.html")
    page.evaluate("document.fonts.ready.then(() => true)")
    loaded = "[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family)"
    assert any(name.strip('"').startswith("KaTeX") for name in page.evaluate(loaded))
    assert page.locator(".katex-error").count() == 0


def test_the_table_of_statements_is_filtered(built, page):
    page.goto(f"file://{built}/theorems.html")
    shown = "ul.statements > li:not([hidden])"
    everything = page.locator(shown).count()
    assert everything >= 138
    page.select_option("select[name=paper]", "marion2024")
    of_paper = page.locator(shown).count()
    assert 0 < of_paper < everything
    assert page.locator("ul.statements > li:visible").count() == of_paper
    page.select_option("select[name=subject]", "sharpness")
    page.fill("input[name=words]", "minimiser")
    kept = page.locator(shown).all_inner_texts()
    assert 0 < len(kept) < of_paper
    assert all("minimiser" in text.lower() for text in kept)
    assert (
        page.locator(".statements-count").inner_text().startswith(f"{len(kept)} of {everything} ")
    )
    page.reload()  # the choice is in the address
    assert page.locator(shown).count() == len(kept)
    page.select_option("select[name=paper]", "ours")
    assert page.locator(shown).count() < of_paper


def test_search_finds_a_page(built, page, asked):
    page.goto(f"file://{built}/search.html?q=edge+of+stability")
    page.locator("ul.search li").first.wait_for(timeout=20_000)
    found = page.locator("ul.search li a").all_inner_texts()
    assert any("edge" in text.lower() for text in found)
    assert asked == []


def test_dark_and_light(built, page):
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"file://{built}/index.html")
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]
