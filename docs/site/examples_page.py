"""The page of the experiment files and scripts in examples/, to read and to download."""

import shutil
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
_LANGUAGES = {".toml": "toml", ".py": "python"}

_HEAD = """# Examples

Experiment files for `thalweg run`, `sweep` and `certify`, and scripts with models of one's own. The
fields of the files are on the page [](experiments.md), and `thalweg init` writes one with every field.
"""


def write(source: Path) -> None:
    """Write the page, and the files beside it."""
    folder = source / "files" / "examples"
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_HEAD]
    for path in sorted(EXAMPLES.iterdir()):
        shutil.copyfile(path, folder / path.name)
        if path.suffix in _LANGUAGES:
            parts.append(_section(path))
    parts.append(
        "## bread.csv\n\nA small table for `csv.toml`: {download}`files/examples/bread.csv`.\n"
    )
    (source / "examples.md").write_text("\n".join(parts), "utf-8")


def _section(path: Path) -> str:
    code = path.read_text("utf-8").rstrip()
    return (
        f"## {path.name}\n\n{{download}}`files/examples/{path.name}`\n\n"
        f":::{{dropdown}} Show it\n```{_LANGUAGES[path.suffix]}\n{code}\n```\n:::\n"
    )
