"""Build wheel and source archive, look into both, and try the wheel in an empty environment.

    python tools/check_release.py                       with the Python that runs this
    python tools/check_release.py --python python3.13   with another one
    python tools/check_release.py --extras explore,rigorous,torch   what these bring, too

What a person does first is done there, outside of the checkout: run, certify, the README's first
example; with the extras explore, prove and check, and the example for PyTorch. Ends with code 1,
and the output of what failed, at the first fault.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from urllib.request import urlopen

from install import settings

ROOT = Path(__file__).parents[1]

IN_WHEEL = (
    "thalweg/py.typed", "thalweg/theorems/catalogue.json", "thalweg/reports/templates/page.html",
    "thalweg/reports/templates/style.css",
)  # fmt: skip
IN_ARCHIVE = ("src/thalweg/__init__.py", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml")
NOT_SHIPPED = re.compile(r"__pycache__|\.nb[ci]$|(^|/)tests/|\.hypothesis")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="with which Python to try it")
    parser.add_argument("--extras", default="", help="extras to install, such as torch")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wheel, archive = _built(place / "dist")
        _look_into(wheel, archive)
        _try(wheel, place, chosen.python, chosen.extras)


def _built(out: Path) -> tuple[Path, Path]:
    _run("build", [_uv(), "build", "--out-dir", str(out), str(ROOT)])
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def _look_into(wheel: Path, archive: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        inside = opened.namelist()
        (about,) = (name for name in inside if name.endswith("METADATA"))
        metadata = opened.read(about).decode()
    with tarfile.open(archive) as opened:
        packed = [name.partition("/")[2] for name in opened.getnames()]
    for names, needed, file in ((inside, IN_WHEEL, wheel), (packed, IN_ARCHIVE, archive)):
        missing = [name for name in needed if name not in names]
        stray = [name for name in names if NOT_SHIPPED.search(name)]
        if missing or stray:
            sys.exit(f"{file.name}: missing {missing}, not to be shipped {stray}")
    for field in ("Summary", "License-Expression", "Requires-Python", "Keywords", "Classifier"):
        if f"\n{field}: " not in metadata:
            sys.exit(f"{wheel.name}: the metadata have no {field}")
    print(f"{wheel.name}: {len(inside)} files, {wheel.stat().st_size / 1e6:.2f} MB; {archive.name}")


def _try(wheel: Path, place: Path, python: str, extras: str) -> None:
    _run("environment", [_uv(), "venv", "--quiet", "--python", python, str(place / "venv")])
    bin_ = place / "venv" / "bin"
    wanted = f"{wheel}[{extras}]" if extras else str(wheel)
    named = extras.split(",")
    more = ["torch==2.13.0"] if "torch" in named else []  # a build without CUDA
    install = [_uv(), "pip", "install", "--quiet", "--python", str(bin_ / "python"), wanted, *more]
    _run("install", install)
    thalweg = str(bin_ / "thalweg")
    _run("version", [thalweg, "--version"], place)
    _run("run", [thalweg, "run", "--out", "first"], place)
    _run("certify", [thalweg, "certify"], place)
    _run("theorems", [thalweg, "theorems", "marion2024:thm2"], place)
    for number, example in enumerate(_examples(torch=bool(more))):
        _run(f"example {number + 1} of the README", [str(bin_ / "python"), "-c", example], place)
    if "rigorous" in named:
        _run("prove", [thalweg, "prove", "--learning-rate", "0.05", "--out", "proof.json"], place)
        _run("check", [thalweg, "check", "proof.json"], place)
    if "explore" in named:
        _explore([thalweg, "explore", "--no-open", "--port", "0"], place)


def _explore(command: list[str], folder: Path) -> None:
    """Start the explorer, ask for its page, and end it."""
    began = time.perf_counter()
    unbuffered = {**_environment(), "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=unbuffered,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert server.stdout is not None
        address = next((line.strip() for line in server.stdout if line.startswith("http")), "")
        page = urlopen(address, timeout=60).read() if address else b""
    finally:
        server.terminate()
    print(f"{'explore':28} {time.perf_counter() - began:6.1f} s", flush=True)
    if b"<html" not in page:
        sys.exit(f"explore: no page at {address!r}")


def _examples(torch: bool) -> list[str]:
    """The README's first example in Python, and the one for PyTorch with a module to go with it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    if not torch:
        return blocks[:1]
    module = (
        "import torch\n"
        "from torch.nn import Linear, Sequential, Tanh\n"
        "module = Sequential(Linear(3, 5), Tanh(), Linear(5, 1))\n"
        "loss_fn, x, y = torch.nn.functional.mse_loss, torch.randn(20, 3), torch.randn(20, 1)\n"
    )
    (of_torch,) = (each for each in blocks if "ModuleObjective" in each)
    return [blocks[0], module + of_torch]


def _run(what: str, command: list[str], folder: Path = ROOT) -> None:
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=_environment(),
    )  # fmt: skip
    print(f"{what:28} {time.perf_counter() - began:6.1f} s", flush=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{what} ended with code {done.returncode}")


def _environment() -> dict[str, str]:
    """Ours, with pip's settings as uv's, and without what would lead back to the checkout."""
    import os

    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    )
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**ours, **settings(listed.stdout)}


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    return found or sys.exit("uv builds and installs, but is not there; `make setup` brings it")


if __name__ == "__main__":
    main()
