"""Settings of Sphinx for the site; `docs/site/build.py` gathers the pages and calls it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from thalweg import __version__

project = "thalweg"
author = "The thalweg developers"
copyright = "The thalweg developers"
version = release = __version__

extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "mathematics", "elsewhere"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
html_math_renderer = "katex"
suppress_warnings: list[str] = []
exclude_patterns = ["files/**"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"thalweg {__version__}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_js_files = [("filter.js", {"defer": "defer"})]
toc_object_entries = False
html_copy_source = False
html_show_sourcelink = False
html_extra_path: list[str] = []
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5c73",
        "color-brand-content": "#0b5c73",
        "color-brand-visited": "#5a4b8b",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cc5dd",
        "color-brand-content": "#6cc5dd",
        "color-brand-visited": "#b3a5e0",
    },
}
pygments_style = "friendly"
pygments_dark_style = "native"
