"""The moving picture of the explorer: `python docs/film_explorer.py`, from the real page.

A headless Chromium opens the page, the learning rate is turned from 0.02 across the edge of
stability to 0.3 and back, and every frame is taken when all curves of its setting are there. What
is shown depends on nothing but the built-in experiment; needs the extras of `thalweg[dev]` and
Debian's chromium.
"""

import io
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from thalweg.experiment import Experiment
from thalweg.explorer.serving import Explorer
from thalweg.explorer.session import Session

PLACE = Path(__file__).parent / "explorer.gif"
BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
SIZE: Any = {"width": 1240, "height": 800}
FIRST, LAST, FRAMES = 0.02, 0.3, 22
SLOW, QUICK = 1400, 160  # ms that a frame stays
COLOURS = 96
TURN = """(rate) => {
  const slider = document.getElementById("field-training-learning_rate");
  const input = slider.parentElement.querySelector('input[type="number"]');
  input.value = String(rate);
  input.dispatchEvent(new Event("change", { bubbles: true }));
}"""


def main() -> None:
    """Take all frames, and write them as one file."""
    with (
        Explorer(Session(Experiment()), 0) as explorer,
        sync_playwright() as playwright,
    ):
        path = next(each for each in BROWSERS if Path(each).exists())
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        page.goto(f"{explorer.address}#training.learning_rate=[{FIRST}]")
        _until(page, "() => window.explorer?.isComplete")
        page.locator("#open-stories").click()
        frames = [_frame(page, rate) for rate in _rates()]
        browser.close()
    _write(frames)
    print(f"{PLACE.name}: {len(frames)} frames, {PLACE.stat().st_size / 1e6:.2f} MB")


def _rates() -> list[float]:
    ratio = (LAST / FIRST) ** (1 / (FRAMES - 1))
    return [float(f"{FIRST * ratio**place:.3g}") for place in range(FRAMES)]


def _frame(page: Any, rate: float) -> Image.Image:
    page.evaluate(TURN, rate)
    _until(page, "() => explorer.isComplete")
    page.mouse.move(5, 5)
    page.wait_for_timeout(60)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _until(page: Any, expression: str) -> None:
    """Wait until it is true; without `eval`, which the page forbids."""
    while not page.evaluate(expression):
        page.wait_for_timeout(20)


def _write(frames: list[Image.Image]) -> None:
    """There and back, with one palette, so that what stays the same costs nothing."""
    palette = frames[len(frames) // 2].quantize(COLOURS, dither=Image.Dither.NONE)
    drawn = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in frames]
    whole = [*drawn, *reversed(drawn[1:-1])]
    stays = [QUICK] * len(whole)
    stays[0] = stays[len(drawn) - 1] = SLOW
    whole[0].save(
        PLACE, save_all=True, append_images=whole[1:], duration=stays, loop=0, optimize=True
    )


if __name__ == "__main__":
    main()
