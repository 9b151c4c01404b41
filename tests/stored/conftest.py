"""Folders of results of each kind, and the command that shows them."""

import sys
from pathlib import Path

import pytest
from stored_kinds import Cubes, make_all

from thalweg import cli, studies


@pytest.fixture(scope="package")
def folders(tmp_path_factory) -> dict[str, Path]:
    return make_all(tmp_path_factory.mktemp("kinds"))


@pytest.fixture
def show(monkeypatch, capsys):
    """Show a path; the exit code, and what is printed on both streams."""
    monkeypatch.setitem(studies.STUDIES, "cubes", "none:Cubes")
    monkeypatch.setattr(studies, "_load", lambda name: Cubes)

    def call(path: Path, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["thalweg", "show", str(path), *options])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return call
