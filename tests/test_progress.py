"""Progress where nobody looks at a terminal: plain lines, on the error stream, now and then."""

import time

import pytest

from thalweg.cli import base, lines


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(lines, "FIRST", 0.05)
    monkeypatch.setattr(lines, "THEN", 0.1)


@pytest.mark.usefixtures("hurried")
def test_lines_tell_stage_share_and_time_left(capsys):
    with base.progress_bars("descent", "flow") as update:
        update("descent", 0.0)
        update("descent", 0.25)
        time.sleep(0.2)
        update("descent", 1.0)
        update("flow", 0.0)
        time.sleep(0.3)
    printed = capsys.readouterr()
    assert printed.out == ""
    told = printed.err.splitlines()
    assert told[0].startswith("descent 25 %, about ")
    assert told[0].endswith(" left")
    assert "flow ..." in told
    assert told[-1].startswith("flow")
    assert 3 <= len(told) <= 8  # not more than one in each 0.1 s, and one per stage


def test_short_work_says_nothing(capsys):
    with base.progress_bars("descent", "flow") as update:
        for stage in ("descent", "flow"):
            update(stage, 0.0)
            update(stage, 1.0)
    with base.working("searching"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("hurried")
def test_work_of_unknown_length_says_that_it_goes_on(capsys):
    with base.working("proving"):
        time.sleep(0.3)
    told = capsys.readouterr().err.splitlines()
    assert told
    assert all(line.startswith("proving") for line in told)


@pytest.mark.usefixtures("hurried")
def test_what_fails_is_not_hidden_and_nothing_is_said_after_it(capsys):
    with pytest.raises(ZeroDivisionError), base.progress_bars("descent") as update:
        update("descent", 1 / 0)
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("hurried")
def test_a_stage_began_where_the_one_before_ended(capsys):
    """The first word of a stage often comes when much of it is done."""
    with base.progress_bars("descent") as update:
        time.sleep(1.2)
        update("descent", 0.2)
        time.sleep(0.15)
    told = capsys.readouterr().err.splitlines()
    # 1.2 s or more for a fifth: 5 s at the least for the rest, and more where the machine is busy.
    left = [int(line.split("about ")[1].split()[0]) for line in told if "%" in line]
    assert left
    assert min(left) >= 4


def test_a_stage_tells_what_is_left_of_it():
    stage = lines._Stage("sweep", 0.4, began=time.monotonic() - 8)
    assert stage.line() == "sweep 40 %, about 12 seconds left"
    assert (
        lines._Stage("tube", 0.0, began=time.monotonic() - 20).line() == "tube, 20 seconds so far"
    )
