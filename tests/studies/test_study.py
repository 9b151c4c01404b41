"""The frame of a study: parts that are computed once, findings that can fail, a page, a command."""

import errno
import json
import sys
from collections.abc import Mapping
from math import inf, nan
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from thalweg import InputError, cli, studies
from thalweg.certificates import Verdict
from thalweg.storage import files
from thalweg.studies import AbstractStudy, Finding, Size, Variant, conduct, publish
from thalweg.studies.parts import Parts
from thalweg.studies.study import yes

COMPUTED: list[str] = []


class Squares(AbstractStudy):
    """The smallest study that there is."""

    count: int
    name: ClassVar[str] = "squares"
    title: ClassVar[str] = "squares grow"
    protocol: ClassVar[str] = "Take squares."
    comparison: ClassVar[str] = "As expected."
    variants: ClassVar[Mapping[str, Variant]] = {"four": Variant("there are four", {"count": 4})}

    @classmethod
    def of_size(cls, size: Size) -> "Squares":
        return cls(3 if size is Size.QUICK else 5)

    def compute(self, parts: Parts, progress: Any) -> xr.Dataset:
        def square(i: int) -> xr.Dataset:
            COMPUTED.append(str(i))
            if len(COMPUTED) == 2:
                raise KeyboardInterrupt
            return xr.Dataset({"square": ("i", [float(i * i)])}, {"i": [i]})

        rows = [parts.get(f"square-{i}", lambda i=i: square(i)) for i in range(self.count)]
        progress("squares", 1.0)
        return xr.concat(rows, "i")

    def findings(self, results: xr.Dataset) -> list[Finding]:
        last = float(results.square[-1])
        return [Finding("the last square", last, 4.0, 16.0, "large"), yes("it grows", last > 0)]

    def draw(self, results: xr.Dataset) -> Mapping[str, Any]:
        figure, axes = plt.subplots()
        axes.plot(results.i, results.square)
        return {"picture": figure}


@pytest.fixture
def squares(monkeypatch):
    COMPUTED.clear()
    monkeypatch.setitem(studies.STUDIES, "squares", "none:Squares")
    monkeypatch.setattr(studies, "_load", lambda name: Squares)
    return Squares


def test_an_interrupted_study_goes_on_where_it_stopped(squares, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        conduct(squares, Size.QUICK, tmp_path)
    outcome = conduct(squares, Size.QUICK, tmp_path)
    assert COMPUTED == ["0", "1", "1", "2"]  # the finished part is not computed again
    assert outcome.confirmed
    again = conduct(squares, Size.QUICK, tmp_path)
    assert len(COMPUTED) == 4  # nor is a finished study
    assert again.seconds == outcome.seconds > 0
    assert not (outcome.folder / "parts" / "anything").exists()
    stored = xr.open_zarr(outcome.folder / "results.zarr", chunks=None)
    np.testing.assert_array_equal(stored.square, [0.0, 1.0, 4.0])
    assert stored.attrs["study"] == "squares"


def test_what_is_written_about_a_study_may_change(squares, tmp_path, monkeypatch):
    COMPUTED.extend("xx")  # past the interruption
    conduct(squares, Size.QUICK, tmp_path)
    count = len(COMPUTED)
    monkeypatch.setattr(Squares, "comparison", "In other words.")
    outcome = conduct(squares, Size.QUICK, tmp_path)
    assert len(COMPUTED) == count
    assert "In other words." in (outcome.folder / "page.md").read_text()


def test_a_variant_is_another_run_in_another_folder(squares, tmp_path):
    COMPUTED.extend("xx")  # past the interruption
    default, four = (
        conduct(squares, Size.QUICK, tmp_path, variants=names) for names in ((), ("four",))
    )
    assert [float(each.findings[0].measured) for each in (default, four)] == [4.0, 9.0]
    assert default.folder != four.folder
    publish(four, tmp_path / "pages")
    page = (tmp_path / "pages" / "squares-quick-four.md").read_text()
    assert "`thalweg reproduce squares --quick --variant four`" in page
    assert "In the variant `four` there are four." in page
    assert "with less of everything: count = 4." in page
    assert "](squares-quick-four-picture.png)" in page
    assert (tmp_path / "pages" / "squares-quick-four-picture.png").exists()


def test_variants_of_all_studies_change_settings_that_there_are():
    for study in studies.find(["all"]):
        for name in study.variants:
            assert study.chosen(Size.FULL, [name]) != study.of_size(Size.FULL), (study.name, name)


def test_data_of_another_revision_are_not_used(squares, tmp_path, monkeypatch):
    COMPUTED.extend("xx")  # past the interruption
    conduct(squares, Size.QUICK, tmp_path)
    count = len(COMPUTED)
    monkeypatch.setattr(Squares, "revision", 2)
    with pytest.raises(InputError, match=r"holds one with other settings.*`--fresh` to replace it"):
        conduct(squares, Size.QUICK, tmp_path)
    assert len(COMPUTED) == count
    conduct(squares, Size.QUICK, tmp_path, fresh=True)
    assert len(COMPUTED) == count + 3


def test_other_settings_do_not_see_the_parts(squares, tmp_path):
    first, second = Parts(tmp_path, "one"), Parts(tmp_path, "other")
    part = xr.Dataset({"x": 1.0})
    first.get("x", lambda: part)
    with pytest.raises(ZeroDivisionError):
        second.get("x", lambda: xr.Dataset({"x": 1 / 0}))
    assert float(first.get("x", lambda: xr.Dataset()).x) == 1.0


def test_words_of_several_lengths_survive_joining(tmp_path):
    def named(name):
        return lambda: xr.Dataset({"x": ("name", [1.0])}, {"name": [name]})

    work = {name: named(name) for name in ("a", "longer", "of-some-length")}
    joined = Parts(tmp_path, "settings").gather("name", work, lambda stage, share: None)
    joined.to_zarr(tmp_path / "all.zarr", zarr_format=2)
    assert xr.open_zarr(tmp_path / "all.zarr", chunks=None).name.values.tolist() == list(work)


def test_a_folder_in_the_way_is_one_sentence(squares, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="folder that can be written to"):
        conduct(squares, Size.QUICK, tmp_path / "file")


@pytest.mark.parametrize(
    ("measured", "least", "most", "margin", "verdict", "expected"),
    [
        (2.0, 1.0, 5.0, 1.0, Verdict.CONFIRMED, "1 to 5"),
        (0.5, 1.0, 5.0, -0.5, Verdict.VIOLATED, "1 to 5"),
        (6.0, -inf, 5.0, -1.0, Verdict.VIOLATED, "at most 5"),
        (6.0, 1.0, inf, 5.0, Verdict.CONFIRMED, "at least 1"),
        (inf, 1.0, inf, inf, Verdict.UNDECIDED, "at least 1"),
        (nan, 1.0, 5.0, nan, Verdict.UNDECIDED, "1 to 5"),
        (nan, -inf, inf, nan, Verdict.UNDECIDED, "at least -inf"),
        (1.0, 1.0, 1.0, 0.0, Verdict.CONFIRMED, "1"),
    ],
)
def test_a_finding_is_confirmed_inside_its_interval_only(
    measured, least, most, margin, verdict, expected
):
    finding = Finding("a number", measured, least, most)
    np.testing.assert_equal(finding.margin, margin)
    assert finding.verdict is verdict
    assert finding.expected == expected


def test_the_command_prints_verdicts_and_fails_with_them(squares, tmp_path, monkeypatch, capsys):
    COMPUTED.extend("xx")  # past the interruption

    def call(*arguments, command="reproduce"):
        monkeypatch.setattr(sys, "argv", ["thalweg", command, *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code or 0, capsys.readouterr()

    code, printed = call("squares", "--out", tmp_path, "--pages", tmp_path / "docs", "--json")
    assert code == 0
    rows = json.loads(printed.out)["squares-quick"]
    assert [row["verdict"] for row in rows] == ["confirmed", "confirmed"]
    page = (tmp_path / "docs" / "squares-quick.md").read_text()
    assert "2 of 2 findings confirmed" in page
    assert "| the last square | 4 to 16 | 4 | 0 | confirmed | large |" in page
    assert (tmp_path / "docs" / "squares-quick-picture.png").exists()
    monkeypatch.setattr(Squares, "findings", lambda self, results: [yes("it shrinks", False)])
    code, printed = call("squares", "--out", tmp_path)
    assert code == 1
    assert "not confirmed: squares-quick" in printed.err
    code, printed = call("--out", tmp_path / "squares-quick", command="run")
    assert code == 2
    assert "must be a folder of this run or a new one, but it holds a study" in printed.err
    code, printed = call("squares", "--quick", "--full")
    assert code == 2
    assert "Either `--quick` or `--full`" in printed.err
    code, printed = call("squares", "--variant", "five")
    assert code == 2
    assert "no variant `five` of squares; its variants are: `four`." in printed.err


@pytest.mark.parametrize(("name", "code"), [("squares", 2), ("all", 0)])
def test_a_study_without_its_data_is_refused_if_it_was_asked_for(
    squares, tmp_path, monkeypatch, capsys, name, code
):
    monkeypatch.setattr(Squares, "needs", ("mnist",))
    monkeypatch.setattr(studies, "STUDIES", {"squares": "none:Squares"})
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))  # where there is no MNIST
    monkeypatch.setattr(sys, "argv", ["thalweg", "reproduce", name, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert (stop.value.code or 0) == code
    assert "MNIST" in capsys.readouterr().err
    assert not (tmp_path / "squares-quick").exists()


@pytest.mark.parametrize("names", [["marion"], ["all", "marion"]])
def test_an_unknown_study_is_refused_with_the_nearest(names):
    with pytest.raises(InputError, match="There is no study `marion`"):
        studies.find(names)


def test_verdicts_are_numbers_that_json_knows():
    row = Finding("a number", 2.5, least=1.0, reported="two").to_dict()
    assert json.loads(json.dumps(row, allow_nan=False)) == {
        "finding": "a number", "verdict": "confirmed", "measured": 2.5, "least": 1.0, "most": None,
        "margin": 1.5, "reported": "two",
    }  # fmt: skip
    assert Finding("none", nan).to_dict()["measured"] is None


def test_the_page_in_the_folder_of_the_results_shows_its_pictures(squares, tmp_path):
    COMPUTED.extend("xx")  # past the interruption
    outcome = conduct(squares, Size.QUICK, tmp_path)
    assert "![picture](picture.png)" in (outcome.folder / "page.md").read_text()
    assert {path.name for path in outcome.folder.glob("picture.*")} == {
        "picture.pdf",
        "picture.png",
    }


def test_a_full_disk_is_one_sentence(squares, tmp_path, monkeypatch):
    COMPUTED.extend("xx")  # past the interruption

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_file", full)
    with pytest.raises(InputError, match="must have room for the results, but it is full"):
        conduct(squares, Size.QUICK, tmp_path)


def test_pages_that_cannot_be_written_are_one_sentence(squares, tmp_path):
    COMPUTED.extend("xx")  # past the interruption
    outcome = conduct(squares, Size.QUICK, tmp_path)
    (tmp_path / "pages").write_text("a file")
    with pytest.raises(InputError, match="must go to a folder that can be written to"):
        publish(outcome, tmp_path / "pages")


def reproduced(monkeypatch, capsys, tmp_path, *more):
    """The exit code of the command that writes pages, and what it said."""
    words = ["thalweg", "reproduce", "squares", "--out", tmp_path, "--pages", tmp_path / "docs"]
    monkeypatch.setattr(sys, "argv", [*map(str, words), *more])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code or 0, " ".join(capsys.readouterr().err.split())


def test_pages_that_are_replaced_are_said(squares, tmp_path, monkeypatch, capsys):
    COMPUTED.extend("xx")  # past the interruption
    docs = tmp_path / "docs"
    assert "replaced" not in reproduced(monkeypatch, capsys, tmp_path)[1]
    before = (docs / "squares-quick.md").read_bytes()
    assert "replaced" not in reproduced(monkeypatch, capsys, tmp_path)[1]  # the same once more
    monkeypatch.setattr(Squares, "comparison", "In other words.")
    said = reproduced(monkeypatch, capsys, tmp_path)[1]
    assert said.endswith(f"replaced, being others before: {docs / 'squares-quick.md'}")
    replaced = (docs / "squares-quick.md").read_bytes()
    assert replaced != before
    for other in (["--full"], ["--variant", "four"], ["--full", "--variant", "four"]):
        assert "replaced" not in reproduced(monkeypatch, capsys, tmp_path, *other)[1]
    assert (docs / "squares-quick.md").read_bytes() == replaced
    assert {path.name for path in docs.glob("*.md")} == {
        "squares-quick.md", "squares.md", "squares-quick-four.md", "squares-four.md",
    }  # fmt: skip


def test_a_file_of_ones_own_is_no_page_to_be_replaced(squares, tmp_path, monkeypatch, capsys):
    notes = tmp_path / "docs" / "squares-quick.md"
    notes.parent.mkdir()
    notes.write_text("# squares: my notes")
    code, said = reproduced(monkeypatch, capsys, tmp_path)
    assert (code, COMPUTED) == (2, [])  # before anything is computed
    assert "must be a page of the study squares-quick or not be there" in said
    assert notes.read_text() == "# squares: my notes"
    notes.unlink()
    notes.parent.rmdir()
    notes.parent.write_text("a file")
    code, said = reproduced(monkeypatch, capsys, tmp_path)
    assert (code, COMPUTED) == (2, [])
    assert "must go to a folder that can be written to" in said


def test_a_study_without_findings_confirms_nothing(squares, tmp_path, monkeypatch):
    COMPUTED.extend("xx")
    monkeypatch.setattr(Squares, "findings", lambda self, results: [])
    outcome = conduct(squares, Size.QUICK, tmp_path)
    assert not outcome.confirmed
    publish(outcome, tmp_path / "pages")
    assert (tmp_path / "pages" / "squares-quick.md").exists()
