"""Compiled code, kept on disk from one process to the next.

JAX compiles every function for every shape, in every process anew, and that is most of what a short
command does. Its own cache on disk takes that away where a folder is named for it. The folder here

* is the user's alone, because whoever writes there decides what code is run;
* is named by jaxlib's version and the processor: code is made for all instructions that it has;
* is looked through when it is first used in a process: what a killed process or a full disk left
  broken goes, and what was not used for longest as soon as all of it exceeds `LARGEST`.

Several processes may share it. An entry that another one is just writing JAX cannot read, and so
compiles once more.
"""

import hashlib
import os
import platform
import sys
import warnings
import zlib
from collections import Counter
from functools import cache
from pathlib import Path

SWITCH = "THALWEG_COMPILED"
"""The environment variable that names another folder, or is `off`."""

LARGEST = 256 * 2**20
"""How many bytes are kept at most; a run of the built-in experiment takes 2.3 million."""

_JAX_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_JAX_SETTINGS = {_JAX_FOLDER: str, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": float}
_CHECKED = "checked"  # a file, as old as the last look at all entries
_ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how its entries begin; they are made where zlib's are not


@cache
def keep_compiled(folder: str | Path | None = None) -> Path | None:
    """Keep what JAX compiles from now on, and take what is there; the folder, or None if off.

    Commands do so by themselves; a program has to ask. Where JAX was told of a folder, it stays
    that one; where no folder can be made, nothing is kept.

    Args:
        folder: where; that of `THALWEG_COMPILED`, or else one in the user's cache, if not given.
    """
    named = folder or os.environ.get(SWITCH)
    if str(named).lower() in ("off", "0", "no", "false"):
        return None
    told = _told()
    if told:
        return Path(told)
    root = Path(named).expanduser() if named else _user_cache() / "thalweg" / "compiled"
    place = root / f"jaxlib-{_jaxlib_version()}-{_processor()}"
    if not _is_private(root) or not _is_private(place):
        return None
    _look_through(root, place)
    _tell(place)
    return place


def count_compiled() -> Counter[str]:
    """A counter that goes on: of what was found (`hits`), and of what was compiled (`misses`)."""
    import jax.monitoring

    found: Counter[str] = Counter()

    def note(event: str, **_: object) -> None:
        kind = event.removeprefix("/jax/compilation_cache/cache_")
        if kind in ("hits", "misses"):
            found[kind] += 1

    jax.monitoring.register_event_listener(note)
    return found


def _told() -> str | None:
    """Which folder JAX was told already."""
    if "jax" in sys.modules:
        return sys.modules["jax"].config.jax_compilation_cache_dir
    return os.environ.get(_JAX_FOLDER)


def _tell(place: Path) -> None:
    """By JAX's environment where it is not loaded yet: loading it is not for every command."""
    # Nothing is lost then but time.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    for name, value in zip(_JAX_SETTINGS, (str(place), "0"), strict=True):
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(name.lower(), _JAX_SETTINGS[name](value))
        else:
            os.environ.setdefault(name, value)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _jaxlib_version() -> str:
    from importlib.metadata import version

    return version("jaxlib")


def _processor() -> str:
    """Short for the kind of processor and its instructions."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = file.read(2**14).splitlines()  # the first of its cores is enough
        names = ("flags", "Features", "model name", "CPU part")
        known = sorted({line for line in lines if line.startswith(names)})
    except OSError:
        known = [platform.processor()]
    words = "\n".join([platform.system(), platform.machine(), *known])
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _is_private(folder: Path) -> bool:
    """Whether it is there, or can be made, and no other user can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if hasattr(os, "getuid") and found.st_uid != os.getuid():
            return False
        if os.name == "posix" and found.st_mode & 0o077:
            folder.chmod(0o700)
        return os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def _look_through(root: Path, place: Path) -> None:
    """Remove entries that are broken, and the oldest ones where there are too many."""
    try:
        stamp = place / _CHECKED
        checked = stamp.stat().st_mtime if stamp.exists() else 0.0
        stamp.touch()
        for entry in place.glob("*-cache"):
            if entry.stat().st_mtime >= checked - 1 and not _is_whole(entry):
                entry.unlink(missing_ok=True)
        _shrink(root)
    except OSError:
        return  # another process was quicker, or the disk fails: what is there serves as it is


def _is_whole(entry: Path) -> bool:
    content = entry.read_bytes()
    if content.startswith(_ZSTANDARD):
        return True  # which says by itself where it ends, but not to the standard library
    try:
        zlib.decompress(content)
    except zlib.error:
        return False
    return True


def _shrink(root: Path) -> None:
    """Down to three quarters of what may be kept, so that it is not done every time."""
    found = [(entry, entry.stat()) for entry in root.glob("*/*-cache")]
    total = sum(each.st_size for _, each in found)
    if total <= LARGEST:
        return
    for entry, each in sorted(found, key=lambda pair: max(pair[1].st_atime, pair[1].st_mtime)):
        entry.unlink(missing_ok=True)
        total -= each.st_size
        if total <= 0.75 * LARGEST:
            return
