"""One concept, one word: those that were retired stay out of all that people read."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RETIRED = {
    r"foret(old|ells?)": "predicts, prediction",
    r"(?<!distance )ways? travelled": "distance travelled, path length",
    r"law of the start": "the initialisation's distribution",
    r"became of": "result, verdict, outcome",
    r"puts? out what|what \w+ puts? out\b": "outputs, output dimension",
    r"disturbs? nobody|depend on \w+ company": "does not affect other runs",
    r"told right": "accuracy",
    r"cannot settle above": "no minimiser is linearly stable above learning rate x",
    r"(keep|kept) (its|their) word": "violated",
    r"networks with two slopes": "(leaky-)ReLU networks",
    r"many chances": "union bound",
    r"is no radius|nothing is proven any more": "the bound diverges at t = ...",
    r"go(es)? on with it\b": "resume, continue",
    r"that one sentence then explains": "invalid input; one-line error with the fix",
}
READ = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "src", "examples",
    ".github",
)  # fmt: skip
OTHERS = {"katex", "theorems.md"}
"""Not ours; and written from src, with the names of tests."""
KINDS = {".md", ".py", ".html", ".js", ".toml", ".yml"}


def texts():
    for place in READ:
        path = ROOT / place
        files = path.rglob("*") if path.is_dir() else [path]
        yield from (each for each in files if each.suffix in KINDS and not OTHERS & {*each.parts})


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_stays_out(word):
    pattern = re.compile(rf"\b(?:{word})", re.I)
    for path in texts():
        text = " ".join(path.read_text("utf-8").split())
        match = pattern.search(text)
        near = text[max(0, match.start() - 40) : match.end() + 20] if match else ""
        assert not match, f"{path.relative_to(ROOT)}: ...{near}...; say: {RETIRED[word]}"


def test_the_search_finds_what_is_there():
    """A word that is in use is found, in Python and in pages."""
    found = [path for path in texts() if "gradient flow" in path.read_text("utf-8")]
    assert {path.suffix for path in found} >= {".md", ".py"}
