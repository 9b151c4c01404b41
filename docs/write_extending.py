"""Put the examples of tests/extending into docs/extending.md, word for word.

A line `<!-- tests/extending/test_own_x.py -->` is followed by that file, which the tests run. Written by
`make docs`; a test holds the page against what this writes.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"

_EXAMPLE = re.compile(r"<!-- (tests/extending/\w+\.py) -->\n(?:```python\n.*?\n```\n)?", re.DOTALL)


def page() -> str:
    """The page with its examples as they are now."""
    return _EXAMPLE.sub(_shown, PAGE.read_text("utf-8"))


def examples() -> list[str]:
    """The files that the page shows."""
    return _EXAMPLE.findall(PAGE.read_text("utf-8"))


def _shown(found: re.Match[str]) -> str:
    code = (ROOT / found[1]).read_text("utf-8").rstrip()
    return f"<!-- {found[1]} -->\n```python\n{code}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
