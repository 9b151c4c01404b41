"""Tutorials are cut into cells, run, and written; the site runs them whole when it is built."""

import json
from pathlib import Path

import matplotlib.pyplot as pyplot
import pytest

SITE = Path(__file__).parents[2] / "docs" / "site"


@pytest.fixture
def tutorials(monkeypatch):
    monkeypatch.syspath_prepend(str(SITE))
    import tutorial_pages

    return tutorial_pages


TEXT = """---
needs: flint
---
# Title

Some text.

```python
import matplotlib.pyplot as plt
print("told")
1 + 1
```

```python
plt.plot([1, 2])
```

```toml
# small.toml
title = "x"
```

```sh
cat small.toml
```

The end.
"""


def test_cells_are_run_and_written(tutorials, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot.close("all")  # what other tests of this process have left open
    assert tutorials.needs(TEXT) == "flint"
    cells = tutorials.cells(TEXT)
    assert [cell.kind for cell in cells] == [
        "markdown",
        "python",
        "python",
        "toml",
        "sh",
        "markdown",
    ]
    tutorials.run(cells, "small", tmp_path)
    assert cells[1].printed == "told\n2\n"
    assert cells[2].printed == ""
    assert cells[2].pictures == ["small-1.png"]
    assert (tmp_path / "small-1.png").read_bytes().startswith(b"\x89PNG")
    assert 'title = "x"' in cells[4].printed
    page = tutorials.page(cells, "small", "")
    assert page.startswith("# Title")
    assert "![What the code above draws](small-1.png)" in page
    code = [cell for cell in tutorials.notebook(cells)["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]).split()[0] for cell in code] == [
        "import", "plt.plot([1,", "%%writefile", "!cat"
    ]  # fmt: skip


def test_a_cell_that_fails_ends_the_build(tutorials, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError):
        tutorials.run(tutorials.cells("# T\n\n```python\n1 / 0\n```\n"), "bad", tmp_path)
    with pytest.raises(RuntimeError, match="ended with code 2"):
        tutorials.run(tutorials.cells("# T\n\n```sh\nexit 2\n```\n"), "bad", tmp_path)


def test_each_tutorial_is_listed_and_a_notebook_of_python(tutorials):
    index = (tutorials.TUTORIALS / "index.md").read_text("utf-8")
    for name in tutorials.names():
        assert f"\n{name}\n" in index
        cells = tutorials.cells((tutorials.TUTORIALS / f"{name}.md").read_text("utf-8"))
        for cell in cells:
            if cell.kind == "python":
                compile(cell.source, name, "exec")
        json.dumps(tutorials.notebook(cells))


@pytest.mark.parametrize("name", ["own-data"])
def test_a_tutorial_runs(tutorials, name, tmp_path, monkeypatch):
    """One of them; `make site` runs all."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    needed = tutorials.needs((tutorials.TUTORIALS / f"{name}.md").read_text("utf-8"))
    if needed:
        pytest.importorskip(needed, reason=f"the tutorial needs {needed}")
    tutorials._in_a_process(name, tmp_path)
    assert "not run" not in (tmp_path / f"{name}.md").read_text("utf-8")
