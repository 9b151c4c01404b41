"""Install the package with its tools into the environment of this Python, as `make` does first.

By uv, which takes a sixth of the time of pip; by pip where uv cannot be had or does not manage. uv
reads none of pip's settings, so pip is asked where packages come from, and uv is told: by its
environment, because addresses may hold passwords and other users can read command lines.

uv leaves Python's bytecode to the first import, which then takes three times as long, every time
where Python is told not to write any. So what the commands import is imported once here; and the
kernels are compiled, as an extension in C would be.
"""

import ast
import os
import shutil
import subprocess
import sys
import threading

PACKAGE = ("--editable", ".[dev]")
UV = "uv>=0.9,<1"

NAMES = {
    "index-url": ("UV_INDEX_URL", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""What pip's settings are called in uv's environment, and what stands between several values."""


def settings(listed: str) -> dict[str, str]:
    """The environment that tells uv what `pip config list` says."""
    found = {}
    for part in ("global.", "install.", ":env:."):  # the later ones count more in pip
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(part) and name.removeprefix(part) in NAMES:
                variable, between = NAMES[name.removeprefix(part)]
                found[variable] = between.join(ast.literal_eval(value).split())
    if "UV_EXTRA_INDEX_URL" in found:
        # As in pip, the newest version of all indexes, not that of the first one that has any.
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return found


USED = (
    "thalweg.cli", "thalweg.experiment.performance", "thalweg.reports.page", "thalweg.sweeps",
    "thalweg.cli.terminal", "thalweg.figures.overview", "matplotlib.backends.backend_agg", "numba",
    "dask.array", "zarr",
)  # fmt: skip
"""Modules with which most of what a command needs is loaded."""


def pip(*arguments: str) -> list[str]:
    """The command of this Python's own pip."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def with_uv() -> bool:
    """Whether uv, the machine's or one of pip's, has installed the package."""
    if shutil.which("uv") is None and subprocess.run(pip("install", "--quiet", UV)).returncode:
        return False
    uv = [shutil.which("uv") or os.path.join(os.path.dirname(sys.executable), "uv")]
    listed = subprocess.run(pip("config", "list"), capture_output=True, text=True).stdout
    return not subprocess.run(
        [*uv, "pip", "install", "--quiet", "--python", sys.executable, *PACKAGE],
        env={**settings(listed), **os.environ},
    ).returncode


def write_bytecode() -> None:
    """Import what commands use; where that does not work, nothing is lost but their time."""
    command = [sys.executable, "-c", f"import {', '.join(USED)}"]
    subprocess.run(command, env=_writing(), stderr=subprocess.DEVNULL)


KERNELS = "descents", "spectra"


def compile_kernels() -> None:
    """Side by side, for they take seconds; where that does not work, the first use compiles."""
    begun = [
        subprocess.Popen([sys.executable, "-m", "thalweg.kernels.ready", name], env=_writing(),
                         stderr=subprocess.DEVNULL)
        for name in KERNELS
    ]  # fmt: skip
    for process in begun:
        process.wait()


def _writing() -> dict[str, str]:
    """An environment in which Python writes bytecode, whatever it was told."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    """Install with uv or else with pip, and end with pip's code."""
    if not with_uv():
        print("uv could not install the package; pip takes a minute or two ...", file=sys.stderr)
        sys.exit(subprocess.run(pip("install", "--quiet", *PACKAGE)).returncode)
    # Each leaves a core to the other for seconds.
    begun = [threading.Thread(target=each) for each in (write_bytecode, compile_kernels)]
    for each in begun:
        each.start()
    for each in begun:
        each.join()


if __name__ == "__main__":
    main()
