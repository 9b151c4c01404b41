"""How fast the explorer answers, measured in a browser: `python benchmarks/explorer.py [MOVES]`.

A server is started as `thalweg explore` starts it, in a process of its own that counts what XLA
compiles, and a headless Chromium opens its page. Measured on the page's own clock:

    first curves       from the navigation to the first curves that are drawn
    curves             from a move of the slider of depth (2 to 40) or width (1 to 10) until the
                       loss of the new setting is drawn
    all curves         likewise, until the flow and the distance from it are
    diagram, begun     from a move until the first cells of the new phase diagram are there
    diagram, whole     until all 40 x 30 cells of 4 runs each are
    compilations       of XLA, from the first move to the last

Run it on quiet cores; it needs the extras of `thalweg[dev]` and Debian's chromium.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
START = "training.learning_rate=[0.02]"
WATCH = """
window.marks = {};
new MutationObserver(() => {
  if (document.body?.dataset.drawn !== undefined) window.marks.drawn ??= performance.now();
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-drawn"] });
"""
MOVE = """async ([name, value, wait]) => {
  const slider = document.getElementById(`field-network-${name}`);
  const input = slider.parentElement.querySelector('input[type="number"]');
  const diagram = () => explorer.views.map.diagram;
  const before = { key: diagram().key, flow: explorer.results.flow };
  const began = performance.now(), found = {};
  input.value = String(value);
  input.dispatchEvent(new Event("change", { bubbles: true }));
  for (;;) {
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now() - began;
    const { results } = explorer;
    if (explorer.isCurrent && !explorer.drawing) {
      found.curves ??= now;
      if (results.flow && !results.flow.old && results.flow !== before.flow) found.all ??= now;
    }
    if (diagram().key !== before.key && diagram().done > 0) found.begun ??= now;
    if (diagram().key !== before.key && diagram().done >= 1) found.whole ??= now;
    const whole = found.whole || results.phase?.state === "refused";
    if (found.all && (!wait || whole)) return found;
    if (now > 120000) throw new Error(`no answer to ${name} ${value}: ${JSON.stringify(found)}`);
  }
}"""


def main() -> None:
    """Measure, and print a table."""
    moves = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryFile("w+") as told, Server(told) as address:
        rows, compiled = _measured(address, moves, told)
    print(f"| {'what':28} | median | worst | of | unit |\n|---|---|---|---|---|")
    for name, values in rows.items():
        middle, worst = statistics.median(values), max(values)
        print(f"| {name:28} | {middle:.0f} | {worst:.0f} | {len(values)} | ms |")
    print(f"| {'compilations':28} | {compiled} | | | |")


class Server:
    """The server, until the end of a `with` statement."""

    def __init__(self, told: Any):
        command = [sys.executable, "-m", "thalweg", "explore", "--no-open", "--port", "0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=told, text=True,
            env=os.environ | {"JAX_LOG_COMPILES": "1", "COLUMNS": "200"},
        )  # fmt: skip

    def __enter__(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait(20)


def _measured(address: str, moves: int, told: Any) -> tuple[dict[str, list[float]], int]:
    path = next(each for each in BROWSERS if Path(each).exists())
    rows: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        page.add_init_script(WATCH)
        for _ in range(5):  # the first while the server still loads
            page.goto("about:blank")
            page.goto(f"{address}#{START}")
            rows.setdefault("first curves", []).append(_drawn(page))
        rows["first curves, server cold"] = [rows["first curves"].pop(0)]
        page.wait_for_timeout(5000)
        before = _compilations(told)
        for name, values in (("depth", range(2, 41)), ("width", range(1, 11))):
            chosen = [values[round(k * (len(values) - 1) / moves)] for k in range(moves + 1)]
            for value in chosen[1:]:
                found = page.evaluate(MOVE, [name, value, False])
                _take(rows, f"{name}: ", found, curves="curves", all="all curves")
        for width in (5, 10):
            page.evaluate(MOVE, ["width", width, True])
            for depth in (2, 5, 10, 20, 40):
                found = page.evaluate(MOVE, ["depth", depth, True])
                where = f"depth {depth}, width {width}: "
                _take(rows, where, found, begun="diagram, begun", whole="diagram, whole")
        compiled = _compilations(told) - before
        browser.close()
    return rows, compiled


def _drawn(page: Any) -> float:
    while (found := page.evaluate("() => window.marks?.drawn ?? null")) is None:
        page.wait_for_timeout(20)
    return float(found)


def _take(rows: dict[str, list[float]], where: str, found: Any, **names: str) -> None:
    for key, name in names.items():
        if found.get(key) is not None:
            rows.setdefault(where + name, []).append(float(found[key]))


def _compilations(told: Any) -> int:
    told.seek(0)
    return len(re.findall(r"Finished XLA compilation", told.read()))


if __name__ == "__main__":
    main()
