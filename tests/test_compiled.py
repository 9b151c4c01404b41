"""Compiled code is found again by other processes; it is private, capped, and heals."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from thalweg import _compiled
from thalweg._compiled import keep_compiled

PROGRAM = """
import thalweg
folder = thalweg.keep_compiled()
import jax, jax.numpy as jnp
from thalweg._compiled import count_compiled
counts = count_compiled()
for width in (3, 4, 5):
    jax.jit(lambda x: jnp.linalg.norm(jnp.sin(x) @ x.T))(jnp.ones((2, width))).block_until_ready()
print(folder, counts["hits"], counts["misses"])
"""


def environment(place: Path | str) -> dict[str, str]:
    """An environment in which JAX was told nothing, and we are told this place."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return {**others, "THALWEG_COMPILED": str(place)}


def start(place: Path | str, program: str = PROGRAM) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program], env=environment(place), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def outcome(process: subprocess.Popen[str]) -> tuple[str, int, int]:
    """The folder, and how many functions were found and compiled."""
    printed, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert complaint == ""
    folder, hits, misses = printed.split()
    return folder, int(hits), int(misses)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that three processes have filled at the same time."""
    place = tmp_path_factory.mktemp("cache") / "compiled"
    found = [outcome(process) for process in [start(place) for _ in range(3)]]
    (folder,) = {folder for folder, *_ in found}
    assert len({hits + misses for _, hits, misses in found}) == 1
    return Path(folder)


def test_what_several_processes_compiled_at_once_is_found_by_the_next(filled: Path):
    folder, hits, misses = outcome(start(filled.parent))
    assert folder == str(filled)
    assert hits == len(list(filled.glob("*-cache"))) > 2
    assert misses == 0


def test_what_is_broken_goes_and_is_compiled_again(filled: Path):
    """As a killed process or a full disk leaves it, and quietly."""
    entries = sorted(filled.glob("*-cache"))
    entries[0].write_bytes(entries[0].read_bytes()[:-20])
    entries[1].write_bytes(b"")
    _, hits, misses = outcome(start(filled.parent))
    assert (hits, misses) == (len(entries) - 2, 2)
    assert sorted(filled.glob("*-cache")) == entries
    assert outcome(start(filled.parent))[1:] == (len(entries), 0)


def test_only_the_user_may_write_there(filled: Path):
    for folder in (filled, filled.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    filled.chmod(0o777)
    assert _compiled._is_private(filled)
    assert stat.S_IMODE(filled.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert not _compiled._is_private(tmp_path)
    (tmp_path / "file").touch()
    assert not _compiled._is_private(tmp_path / "file" / "folder")


def test_the_folder_is_named_by_version_and_processor(monkeypatch):
    here = _compiled._processor()
    assert here == _compiled._processor()
    monkeypatch.setattr(_compiled.platform, "machine", lambda: "another")
    assert here != _compiled._processor()


def test_the_least_used_goes_first_where_there_is_too_much(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_compiled, "LARGEST", 1000)
    for number in range(12):  # of two versions, the higher the number the later used
        entry = tmp_path / f"version{number % 2}" / f"{number}-cache"
        entry.parent.mkdir(exist_ok=True)
        entry.write_bytes(bytes(100))
        os.utime(entry, (number + 1, number + 1))
    _compiled._shrink(tmp_path)
    left = sorted(int(entry.name.removesuffix("-cache")) for entry in tmp_path.glob("*/*-cache"))
    assert left == [5, 6, 7, 8, 9, 10, 11]  # at most three quarters of what may be kept


def test_nothing_is_kept_where_that_is_switched_off_or_not_asked_for(tmp_path: Path):
    shown = "import jax; print(jax.config.jax_compilation_cache_dir)"
    asked = f"import thalweg; print(thalweg.keep_compiled()); {shown}"
    for program, said in ((asked, "None\nNone\n"), (f"import thalweg; {shown}", "None\n")):
        printed, complaint = start("off", program).communicate(timeout=300)
        assert (printed, complaint) == (said, "")
    own = tmp_path / "own"
    program = f"import jax; jax.config.update('jax_compilation_cache_dir', {str(own)!r}); {asked}"
    printed, _ = start(tmp_path / "ours", program).communicate(timeout=300)
    assert printed == f"{own}\n{own}\n"
    assert not (tmp_path / "ours").exists()


def test_off_means_off_in_this_process(monkeypatch):
    monkeypatch.setenv("THALWEG_COMPILED", "off")
    assert keep_compiled.__wrapped__() is None


def test_the_first_commands_compile_next_to_nothing(tmp_path: Path):
    """Whole commands on the built-in experiment, after one another in one process."""
    program = """
import sys
from thalweg.cli import main
from thalweg._compiled import count_compiled, keep_compiled
keep_compiled()
counts, found = count_compiled(), []
for sys.argv in (["thalweg", "certify"], ["thalweg", "run"]):
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    found.append(counts.total())
print(*found)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path / "compiled"), cwd=tmp_path,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    certify, both = map(int, process.stdout.split()[-2:])
    # One draws normal numbers; 51 and 65 once were. Each costs a new machine a tenth of a second.
    assert 1 <= certify <= 3
    assert both <= 6
