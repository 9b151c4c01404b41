"""The command line, called in this process: what it writes, prints and refuses."""

import json
import signal
import sys

import numpy as np
import pytest
import xarray as xr

from thalweg import cli, experiment


@pytest.fixture
def thalweg(monkeypatch, capsys):
    """Run a command; its exit code, and what it printed on both streams."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["thalweg", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return stop.value.code or 0, printed.out, printed.err

    return call


def test_run_writes_report_figure_and_data(thalweg, tmp_path):
    folder = tmp_path / "new" / "folder"
    code, printed, _ = thalweg(
        "run", "--out", folder, "--depth", 3, "--time", 4, "--learning-rate", 0.02,
        "--learning-rate", 0.1, "--json",
    )  # fmt: skip
    assert code == 0
    summary = json.loads(printed)
    assert [row["rate"] for row in summary["runs"]] == ["0.02", "0.1"]
    page = (folder / "report.html").read_text()
    assert summary["report"] == str(folder / "report.html")
    assert page.count("<tr>") == 3
    assert "data:image/png;base64,iVBOR" in page
    assert (folder / "overview.png").stat().st_size > 20_000
    assert (folder / "overview.pdf").read_bytes().startswith(b"%PDF")
    results = xr.open_zarr(folder / "results.zarr")
    assert dict(results.sizes) == {"learning_rate": 2, "record": 41, "flow_time": 41}
    np.testing.assert_allclose(results.time[1], 0.1 * np.arange(41), atol=1e-12)
    np.testing.assert_allclose(results.flow_time, 0.1 * np.arange(41), atol=1e-12)
    assert results.attrs["experiment_depth"] == 3
    # Before anything else can differ, all runs sit on the same start.
    assert float(results.distance.isel(record=0).max()) == 0
    assert np.ptp(results.loss.isel(record=0).values) == 0
    # The smaller step stays nearer to the flow, about in proportion.
    gaps = results.distance.isel(record=20).values
    assert 2 < gaps[1] / gaps[0] < 12


def test_run_prints_a_table_and_where_the_report_is(thalweg, tmp_path):
    code, printed, _ = thalweg(
        "run", "--out", tmp_path, "--depth", 2, "--time", 2, "--learning-rate", 0.1
    )
    assert code == 0
    assert "rate   2 / rate   sharpness   excess loss   distance   proven to   diverged" in printed
    assert f"Report: {tmp_path / 'report.html'}" in printed
    assert "No minimiser is flatter than" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--learning-rate", "-0.1"], "`learning_rates` must be positive and finite, got -0.1"),
        (["--learning-rate", "0"], "`learning_rates` must be positive"),
        (["--depth", "0"], "`depth` must be a whole number >= 1, got 0"),
        (["--time", "nan"], "`time` must be positive and finite, got nan"),
        (["--time", "0.01"], "`time` must allow at least one step"),
        (["--init-scale", "-1"], "`init_scale` must be positive"),
        (["--depth", "two"], "Invalid value for '--depth'"),
        (["--no-such-option"], "No such option: --no-such-option"),
        (["--out", "/proc/none/here", "--depth", "2", "--time", "0.2"], "`--out` must be a folder"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_code_2(thalweg, arguments, sentence):
    code, printed, complaint = thalweg("run", *arguments)
    assert code == 2
    assert sentence in complaint
    assert "Traceback" not in complaint + printed


def test_an_unknown_benchmark_is_refused(thalweg):
    code, _, complaint = thalweg("bench", "nonsense")
    assert code == 2
    assert "A benchmark must be one of descent, flow, curvature, got 'nonsense'" in complaint


def test_an_interrupt_ends_with_a_word_and_code_130(thalweg, monkeypatch, tmp_path):
    """The signal comes in the middle of the work; `sys.exit` stands in for the end."""
    monkeypatch.setattr(experiment, "perform", lambda *_: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(cli.os, "_exit", sys.exit)
    code, _, complaint = thalweg("run", "--out", tmp_path / "none")
    assert code == 130
    assert "interrupted" in complaint
    assert not (tmp_path / "none").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_version_is_printed(thalweg):
    from thalweg import __version__

    assert thalweg("--version")[:2] == (0, f"{__version__}\n")


def test_certify_says_what_holds_and_what_does_not(thalweg):
    code, printed, _ = thalweg("certify", "--depth", 3, "--white", "--start", "balanced")
    assert code == 0
    assert "sharpness of the minimiser, at least" in printed
    assert "What does not apply, and why" in printed


@pytest.mark.parametrize("rate", ["0", "-1", "nan"])
def test_certify_refuses_a_learning_rate_that_is_none(thalweg, rate):
    code, _, error = thalweg("certify", "--depth", 2, "--learning-rate", rate)
    assert code == 2
    assert "`learning_rate` must be" in error


def test_certify_prints_json(thalweg):
    code, printed, _ = thalweg("certify", "--depth", 2, "--learning-rate", 0.01, "--json")
    assert code == 0
    found = {each["statement"]: each for each in json.loads(printed)["certificates"]}
    assert found["marion2024:thm2"]["verdict"] == "confirmed"
    assert found["arora2019:thm1"]["verdict"] == "not applicable"


def test_theorems_can_be_listed_by_paper(thalweg):
    code, printed, _ = thalweg("theorems", "--paper", "marion2024", "--json")
    assert code == 0
    rows = json.loads(printed)
    assert {row["statement"].split(":")[0] for row in rows} == {"marion2024"}
    assert all(row["meaning"] and row["code"] and row["tests"] for row in rows)
    code, printed, _ = thalweg("theorems", "--paper", "arora2019")
    assert code == 0
    assert "arora2019:thm1" in printed
    code, _, error = thalweg("theorems", "--paper", "nobody2020")
    assert code == 2
    assert "`paper` must be one of arora2019, elkabetz2021, marion2024" in error


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("depht = 3", "must not set `depht`, which no experiment has; did you mean `depth`?"),
        ("depth = ", "must be a TOML file"),
        ("depth = -1", "`depth` must be a whole number >= 1, got -1"),
        ("start = 'zero'", "`start` must be one of gaussian, balanced, residual, got 'zero'"),
    ],
)
def test_a_broken_experiment_file_gets_one_sentence(thalweg, tmp_path, text, sentence):
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    code, _, error = thalweg("certify", file)
    assert code == 2
    assert sentence in error.replace("\n", " ")


def test_a_file_that_is_not_there_gets_one_sentence(thalweg, tmp_path):
    code, _, error = thalweg("run", tmp_path / "none.toml")
    assert code == 2
    assert "The experiment must be a file that can be read" in error


def test_a_file_and_the_command_line_describe_one_experiment(thalweg, tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text("depth = 2\ntime = 1.0\nlearning_rates = [0.1]\nstart = 'residual'\n")
    code, printed, _ = thalweg("run", file, "--out", tmp_path / "out", "--json")
    assert code == 0
    assert [row["rate"] for row in json.loads(printed)["runs"]] == ["0.1"]
    results = xr.open_zarr(tmp_path / "out" / "results.zarr")
    assert results.attrs["experiment_depth"] == 2
    assert results.attrs["experiment_start"] == "residual"
