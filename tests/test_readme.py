"""The README's example runs as it stands, and says what is true."""

import importlib.util
import re
from pathlib import Path

from thalweg.studies import STUDIES

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(code.strip().splitlines()) <= 16
    names = {}
    exec(compile(code, str(README), "exec"), names)
    printed = capsys.readouterr().out
    assert "distance to the flow" in printed
    # Below the edge descent ends near the flow, in a minimiser that it can settle in.
    assert names["gap"][-1] < 0.02
    assert names["flow"].error.max() < 1e-6
    assert names["top"].value < 2 / 0.02


def test_every_linked_file_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_the_table_of_studies_is_current():
    place = README.parent / "docs" / "write_studies.py"
    spec = importlib.util.spec_from_file_location("write_studies", place)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert README.read_text("utf-8") == script.readme(), "run `make docs`"
    assert all(f"`{name}" in script.table() for name in STUDIES)
