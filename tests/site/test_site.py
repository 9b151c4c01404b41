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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site's pages; `html` in it."""
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

    yield {"links": links, "mathematics": mathematics}
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
