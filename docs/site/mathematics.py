"""Mathematics set by KaTeX while the site is built, so that pages need no script and no other host.

As a Sphinx extension it renders every formula; a formula that does not compile is a warning, and so
an error of the build. `render` does the same for the tests.
"""

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

KATEX = Path(__file__).parent / "katex"
STYLE = "katex.css"

MACROS = {
    r"\norm": r"\left\lVert #1 \right\rVert",
    r"\abs": r"\left\lvert #1 \right\rvert",
    r"\inner": r"\left\langle #1 \right\rangle",
    r"\R": r"\mathbb{R}",
    r"\E": r"\mathbb{E}",
    r"\P": r"\mathbb{P}",
    r"\tr": r"\operatorname{tr}",
    r"\rank": r"\operatorname{rank}",
    r"\diag": r"\operatorname{diag}",
    r"\vec": r"\operatorname{vec}",
    r"\sign": r"\operatorname{sign}",
    r"\artanh": r"\operatorname{artanh}",
    r"\argmin": r"\operatorname*{arg\,min}",
    r"\spec": r"\mathrm{s}",
    r"\fro": r"\mathrm{F}",
    r"\nuc": r"\mathrm{nuc}",
    r"\T": r"^{\!\top}",
    r"\cstar": r"c",
    r"\rate": r"\mathrm{rate}",
}
"""What formulas may use besides KaTeX's own commands."""

_SETUP = """
globalThis.set = function (tex, display, macros) {
    try {
        return JSON.stringify([true, katex.renderToString(tex, {
            displayMode: display, throwOnError: true, strict: "error", macros: macros,
        })]);
    } catch (error) { return JSON.stringify([false, error.message]); }
}; 0
"""


class MathematicsError(ValueError):
    """A formula that KaTeX cannot set."""


@cache
def _engine() -> Any:
    import quickjs

    engine = quickjs.Context()
    engine.eval((KATEX / "katex.min.js").read_text("utf-8") + "\n;0")
    engine.eval(_SETUP)
    return engine


@cache
def render(tex: str, display: bool) -> str:
    """The formula as HTML, with MathML for screen readers."""
    arguments = ", ".join(json.dumps(each) for each in (tex, display, MACROS))
    done, answer = json.loads(_engine().eval(f"set({arguments})"))
    if not done:
        raise MathematicsError(f"{answer}, in {tex!r}")
    return answer


def style_sheet() -> str:
    """KaTeX's style with its fonts inside, because browsers refuse fonts to a page from a folder."""

    def inside(match: re.Match[str]) -> str:
        font = base64.b64encode((KATEX / match[1]).read_bytes()).decode()
        return f'src:url(data:font/woff2;base64,{font}) format("woff2")'

    sheet = (KATEX / "katex.min.css").read_text("utf-8")
    return re.sub(r'src:url\((fonts/[\w-]+\.woff2)\) format\("woff2"\)[^;}]*', inside, sheet)


def _write(writer: Any, node: Any, display: bool) -> None:
    from docutils import nodes
    from sphinx.util import logging

    tex = node.astext()
    try:
        markup = render(tex, display)
    except MathematicsError as error:
        logging.getLogger(__name__).warning("%s", error, location=node)
        markup = writer.encode(tex)
    tag = "div" if display else "span"
    writer.body.append(f'<{tag} class="math">{markup}</{tag}>')
    raise nodes.SkipNode


def _write_style(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / STYLE).write_text(style_sheet(), "utf-8")


def setup(app: Any) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_html_math_renderer(
        "katex",
        (lambda writer, node: _write(writer, node, False), None),
        (lambda writer, node: _write(writer, node, True), None),
    )
    app.add_css_file(STYLE)
    app.connect("build-finished", _write_style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
