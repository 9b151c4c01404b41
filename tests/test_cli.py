"""The command line, called in this process: what it writes, prints and refuses."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thalweg import InputError, bench, cli, experiment
from thalweg.theorems import catalogue


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


SMALL = ("--set", "network.depth=2", "--set", "start.scale=0.5")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "training.learning_rate=-0.1"], "`training.learning_rate[0]` must be greater"),
        (["--set", "network.depth=0"], "`network.depth` must be greater than or equal to 1"),
        (["--set", "network.depth=two"], "`network.depth` must be a valid integer"),
        (["--set", "training.time=nan"], "`training.time` must be a finite number"),
        (["--set", "network.dept=2"], "did you mean `depth`?"),
        (["--set", "netwrk.depth=2"], "did you mean `network.depth`?"),
        (["--set", "network.depth"], "`--set` must have the form FIELD=VALUE"),
        (["--no-such-option"], "No such option: --no-such-option"),
        (["--out", "/proc/none/here"], "must go to a folder that can be written to"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_code_2(thalweg, arguments, sentence):
    code, printed, complaint = thalweg("run", *SMALL, *arguments)
    assert code == 2
    assert sentence in complaint
    assert "Traceback" not in complaint + printed


def test_a_file_and_changes_describe_one_experiment(thalweg, tmp_path, monkeypatch):
    """Later changes win; words need no quotes; the folder may come from the file."""
    seen = []

    def remember(settings, folder, progress, kept_in, **_):
        seen.append((settings, folder, kept_in))
        raise experiment.files.InputError("enough.")

    monkeypatch.setattr(experiment, "perform", remember)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "experiment.toml"
    file.write_text('[network]\ndepth = 5\n[output]\nfolder = "there"\n')
    code, _, _ = thalweg(
        "run", file, "--set", "start.kind=balanced", "--set", "training.learning_rate=[0.1, 0.2]",
        "--set", "network.depth=2",
    )  # fmt: skip
    assert code == 2
    settings, folder, kept_in = seen[0]
    assert settings.network.depth == 2
    assert settings.start.kind == "balanced"
    assert settings.training.learning_rate == (0.1, 0.2)
    assert folder == file.parent
    assert str(kept_in) == "there"


@pytest.fixture
def interrupts():
    """Interrupts are heard, even where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_ends_with_a_word_and_code_130(thalweg, monkeypatch, tmp_path):
    """The signal comes in the middle of the work; `sys.exit` stands in for the end."""
    monkeypatch.setattr(experiment, "perform", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(cli.os, "_exit", sys.exit)
    code, _, complaint = thalweg("run", *SMALL, "--out", tmp_path / "none")
    assert code == 130
    assert "interrupted" in complaint
    assert not (tmp_path / "none" / "report.html").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_init_writes_the_builtin_experiment_with_comments(thalweg, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert thalweg("init")[0] == 0
    text = (tmp_path / "experiment.toml").read_text("utf-8")
    assert experiment.from_toml(text) == experiment.Experiment()
    # Every field of the built-in tables is there, set or as a comment, with its meaning.
    for table, part in experiment.Experiment():
        for field, info in getattr(type(part), "model_fields", {}).items():
            pattern = [line for line in text.splitlines() if line.lstrip("# ").startswith(field)]
            assert any(info.description in line for line in pattern), (table, field)
    code, _, complaint = thalweg("init")
    assert code == 2
    assert "must not be there yet" in complaint
    (tmp_path / "experiment.toml").write_text("mine")
    assert thalweg("init", "experiment.toml", "--force")[0] == 0
    assert (tmp_path / "experiment.toml").read_text("utf-8") == text
    code, _, complaint = thalweg("init", tmp_path / "none" / "here.toml")
    assert code == 2
    assert "must be a file that can be written" in complaint


def test_an_unknown_benchmark_is_refused(thalweg):
    code, _, complaint = thalweg("bench", "nonsense")
    assert code == 2
    assert "A benchmark must be one of descent, flow, curvature" in complaint
    assert "got 'nonsense'" in complaint


def test_brackets_are_printed_as_they_are(thalweg, tmp_path):
    """They are no markup, wherever they come from."""
    code, _, complaint = thalweg("show", tmp_path / "[bold]runs[/x]")
    assert code == 2
    assert "[bold]runs[/x]" in complaint.replace("\n", "")


def test_proofs_are_told_as_json(thalweg, tmp_path):
    proof = tmp_path / "proof.json"
    code, printed, _ = thalweg(
        "prove", *SMALL, "--set", "data.features=2", "--set", "network.width=2",
        "--set", "training.time=0.1", "--set", "training.learning_rate=0.05",
        "--out", proof, "--json",
    )  # fmt: skip
    assert code == 0
    told = json.loads(printed)
    assert told["proof"] == str(proof)
    assert [run["steps"] for run in told["runs"]] == [2]
    assert told["radius"] < 1e-17
    code, printed, _ = thalweg("check", proof, "--json")
    assert code == 0
    verdict = json.loads(printed, parse_constant=pytest.fail)
    assert verdict["accepted"]
    assert verdict["runs"][0]["largest_upper"] == told["runs"][0]["upper"]
    content = json.loads(proof.read_text())
    content["radii"][-1] = "0x0.0p+0"
    proof.write_text(json.dumps(content))
    code, printed, _ = thalweg("check", proof, "--json")
    assert code == 1
    assert not json.loads(printed, parse_constant=pytest.fail)["accepted"]


def test_benchmarks_without_their_needs_are_left_out_unless_they_were_named(monkeypatch):
    def missing():
        raise InputError("it needs something.")

    def there():
        return "measured"

    monkeypatch.setattr(bench, "BENCHMARKS", {"one": {"a": missing, "b": there}})
    said = []
    assert list(bench.measure([], said.append)) == ["measured"]
    assert said == ["one: a", "left out: it needs something.", "one: b"]
    with pytest.raises(InputError, match="it needs something"):
        list(bench.measure(["one"], said.append))


def test_the_version_is_printed(thalweg):
    from thalweg import __version__

    assert thalweg("--version")[:2] == (0, f"{__version__}\n")


def test_certify_says_what_holds_and_what_does_not(thalweg):
    code, printed, _ = thalweg(
        "certify", "--set", "network.depth=3", "--set", "data.white=true", "--set",
        "start.kind=balanced",
    )  # fmt: skip
    assert code == 0
    assert "Sharpness of the minimiser, at least" in printed
    assert "What does not apply, and why" in printed


@pytest.mark.parametrize("rate", ["0", "-1", "nan"])
def test_certify_refuses_a_learning_rate_that_is_none(thalweg, rate):
    code, _, error = thalweg("certify", *SMALL, "--learning-rate", rate)
    assert code == 2
    assert "`--learning-rate` must be" in error


def test_certify_prints_json(thalweg):
    code, printed, _ = thalweg("certify", *SMALL, "--learning-rate", 0.01, "--json")
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


def test_theorems_are_listed_a_line_each(thalweg):
    code, printed, _ = thalweg("theorems")
    assert code == 0
    rows = catalogue.rows()
    lines = printed.splitlines()
    assert lines[len(rows)].startswith(f"{len(rows)} statements")
    for row, line in zip(rows, lines, strict=False):
        assert line.split()[0] == row["statement"]
        assert row["meaning"] in line  # whole, where it goes to a file


def test_one_theorem_is_shown_in_full(thalweg):
    code, printed, _ = thalweg("theorems", "elkabetz2021:thm3")
    assert code == 0
    assert "eta < inf over 0 < t <= time of" in printed
    assert "thalweg.theorems.discretisation.following.FollowsFlow" in printed
    assert "tests/theorems/test_following.py" in printed
    assert max(map(len, printed.splitlines())) <= 80
    code, printed, _ = thalweg("theorems", "elkabetz2021:thm3", "--json")
    assert json.loads(printed)["statement"] == "elkabetz2021:thm3"
    code, _, error = thalweg("theorems", "elkabetz2021:thm")
    assert code == 2
    assert "(meant elkabetz2021:thm1 or elkabetz2021:thm2 or elkabetz2021:thm3?)" in error
    code, _, error = thalweg("theorems", "arora2019:thm1", "--paper", "arora2019")
    assert code == 2
    assert "Either STATEMENT or `--paper`" in error


def test_the_list_of_theorems_loads_none_of_them():
    """Or it would take seconds instead of a part of one."""
    script = (
        "import sys; from thalweg.cli import stating, terminal; "
        "from thalweg.theorems import catalogue; assert catalogue.rows(); "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_help_shows_brackets_as_they_are(thalweg):
    code, printed, _ = thalweg("sweep", "--help")
    assert code == 0
    assert "a table [[sweep]]." in printed


@pytest.mark.parametrize(
    ("typed", "word", "wanted"),
    [("thalweg theor", 1, "theorems"), ("thalweg sweep --sch", 2, "--scheduler")],
)
def test_the_shell_completes_commands_and_options(typed, word, wanted):
    """In a process of its own, because the program is known to completion by how it was started."""
    asked = {"_THALWEG_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(word)}
    program = Path(sys.executable).with_name("thalweg")
    done = subprocess.run([program], env=os.environ | asked, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.split() == [wanted]


def test_help_is_as_wide_as_the_terminal():
    for command in cli.app.registered_commands:
        assert command.help, command.name
        assert all("\n" not in paragraph for paragraph in command.help.split("\n\n"))


class JaxRuntimeError(RuntimeError):
    """Called like JAX's own."""


@pytest.mark.parametrize(
    "error",
    [MemoryError(), JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes")],
)
def test_memory_that_runs_out_is_one_sentence(thalweg, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(experiment, "prepared", fail)
    code, _, complaint = thalweg("run", *SMALL)
    assert code == 2
    assert "The work must fit in memory" in complaint


def test_real_faults_are_not_hidden(thalweg, monkeypatch):
    def fail(*_):
        raise JaxRuntimeError("INTERNAL: something is broken")

    monkeypatch.setattr(experiment, "prepared", fail)
    with pytest.raises(JaxRuntimeError, match="INTERNAL"):
        thalweg("run", *SMALL)
