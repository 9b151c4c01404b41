"""The page's files: all it loads is there, its types agree, what is not ours is as published."""

import hashlib
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

PAGE = Path(str(files("thalweg") / "explorer" / "page"))
HERE = Path(__file__).parent
UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of version 1.6.32, as its package has them."""


def test_all_that_the_page_loads_is_beside_it():
    text = (PAGE / "index.html").read_text()
    named = [name for name in re.findall(r'(?:src|href)="([^"#]+)"', text)]
    assert len(named) >= 5
    for name in named:
        assert (PAGE / name).is_file(), name
    for module in (PAGE / "js").glob("*.js"):
        for name in re.findall(r'from "([^"]+)"', module.read_text()):
            assert (module.parent / name).resolve().is_file(), (module.name, name)


def test_the_policy_of_the_server_is_kept():
    """No script, style or handler stands in the page itself."""
    text = (PAGE / "index.html").read_text()
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*src=)", text) == []
    for module in (PAGE / "js").glob("*.js"):
        assert re.findall(r"innerHTML|\beval\(|new Function", module.read_text()) == [], module


@pytest.mark.parametrize("name", UPLOT)
def test_what_is_not_ours_is_as_it_was_published(name):
    assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == UPLOT[name]
    assert "MIT" in (PAGE / "vendor" / "uPlot.LICENSE.txt").read_text()


def test_types_agree():
    compiler = HERE / "node_modules" / ".bin" / "tsc"
    if not compiler.exists() or shutil.which("node") is None:
        pytest.skip("types are checked by tsc: npm install --no-package-lock in tests/explorer")
    found = subprocess.run([compiler, "-p", HERE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
