"""docs/quantities.md shows every quantity of the package, as the registry has it."""

import importlib.util
import re
from pathlib import Path

from thalweg.quantities.of_runs import (
    ACROSS_KINKS,
    AT_THE_EDGE,
    BASIC,
    NEXT_TO_THE_FLOW,
    OF_A_SWEEP,
    THEORY,
)
from thalweg.quantities.of_weights import MEASURED, SPECTRUM

ROOT = Path(__file__).parents[1]


def script():
    place = ROOT / "docs" / "write_quantities.py"
    spec = importlib.util.spec_from_file_location("write_quantities", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    assert script().PAGE.read_text("utf-8") == script().page(), "run `make docs`"


def test_every_quantity_has_one_row_and_no_variant_has():
    # By the lists that the registry is made of, where there are no variants yet.
    own = (
        *BASIC,
        *MEASURED,
        *SPECTRUM,
        *NEXT_TO_THE_FLOW,
        *ACROSS_KINKS,
        *AT_THE_EDGE,
        *THEORY,
        *OF_A_SWEEP,
    )
    rows = re.findall(r"^\| `(\w+)` \|", script().page(), flags=re.MULTILINE)
    assert sorted(rows) == sorted(each.name for each in own)


def test_every_row_has_four_cells():
    rows = [line for line in script().page().splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}  # and what is outside of both
