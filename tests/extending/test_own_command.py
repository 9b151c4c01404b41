"""A command of one's own, beside those of thalweg: `python my_command.py half-life 0.1`."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import thalweg as tw
from thalweg.cli.base import app, out


def half_life(
    rate: Annotated[float, typer.Argument(help="The rate at which the loss falls.")],
) -> None:
    """Say how long the loss takes to halve."""
    if not rate > 0:
        raise tw.InputError(f"`rate` must be a number > 0, got {rate:g}.")
    out.print(f"{0.6931471805599453 / rate:.4g}")


@pytest.fixture
def command():
    app.command("half-life")(half_life)
    yield
    app.registered_commands.pop()


def test_it_runs_and_is_listed(command):
    found = CliRunner().invoke(app, ["half-life", "0.1"])
    assert (found.exit_code, found.stdout.strip()) == (0, "6.931")
    assert "half-life" in CliRunner().invoke(app, ["--help"]).stdout


def test_bad_input_is_one_sentence(command):
    found = CliRunner().invoke(app, ["half-life", "0"])
    assert str(found.exception) == "`rate` must be a number > 0, got 0."
