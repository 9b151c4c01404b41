"""docs/extending.md shows every example of this folder, as it is."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def script():
    spec = importlib.util.spec_from_file_location("writer", ROOT / "docs" / "write_extending.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    assert script().PAGE.read_text("utf-8") == script().page(), "run `make docs`"


def test_every_example_is_shown():
    here = {f"tests/extending/{path.name}" for path in Path(__file__).parent.glob("test_own_*.py")}
    assert set(script().examples()) == here
