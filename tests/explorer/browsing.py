"""A person before the page: opens it, turns what is on it, and waits until all is shown."""

import time
from pathlib import Path
from typing import Any

SMALL = {
    "network.depth": "2", "network.width": "2", "training.time": "4", "data.samples": "10",
    "data.features": "2", "training.learning_rate": "[0.05]",
}  # fmt: skip
"""A setting that is computed at once."""


def written(setting: dict[str, str]) -> str:
    """A setting as it stands in the address."""
    return "&".join(f"{name}={value}" for name, value in setting.items())


class Person:
    """One page of one browser, with what it complained about and whom it asked."""

    def __init__(self, page: Any, address: str):
        self.page, self.address = page, address
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda told: told.type == "error" and self.complaints.append(told.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, changes: dict[str, str] | str | None = None, wait: bool = True) -> "Person":
        """A fresh page at a small setting with some changes, or at an address as it is written."""
        shown = changes if isinstance(changes, str) else written(SMALL | (changes or {}))
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#{shown}")
        return self.settle() if wait else self

    def js(self, expression: str) -> Any:
        """What an expression is on the page."""
        return self.page.evaluate(f"() => {expression}")

    def until(self, expression: str, seconds: float = 180.0) -> Any:
        """Wait until an expression is true; without `eval`, which the page forbids."""
        end = time.monotonic() + seconds
        while not (found := self.js(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"never came true: {expression}; {self.refusal!r}")
            time.sleep(0.02)
        return found

    def settle(self) -> "Person":
        """Wait until the curves are those of the setting, or it is refused."""
        self.until("window.explorer?.isCurrent || !document.getElementById('refusal').hidden")
        return self

    def complete(self) -> "Person":
        """Wait until all parts of the setting are shown, or it is refused."""
        self.until("window.explorer?.isComplete || !document.getElementById('refusal').hidden")
        return self

    def field(self, name: str) -> Any:
        """What is posted of a field; None where it is the default."""
        table, key = name.split(".")
        return self.js(f"explorer.setting['{table}']?.['{key}'] ?? null")

    @property
    def hash(self) -> str:
        """The address as it stands, written out."""
        self.js("explorer.writeNow()")
        return self.js("decodeURIComponent(location.hash.slice(1))")

    @property
    def refusal(self) -> str:
        """The sentence of a refusal, empty if there is none."""
        return self.js(
            "document.getElementById('refusal').hidden ? '' "
            ": document.getElementById('refusal').textContent"
        )

    @property
    def sentence(self) -> str:
        """What is said in words."""
        return self.page.locator("#sentences").inner_text()

    def row(self, part: str, array: str, *places: int) -> list[float | None]:
        """Numbers that are shown; None where there is none."""
        inside = "".join(f", {place}" for place in places)
        code = (
            f"(() => {{ const t = explorer.results['{part}']?.arrays['{array}'];"
            " if (!t) return null; let at = 0, size = t.values.length;"
            f" [{inside[2:]}].forEach((p, a) => {{ size /= t.shape[a]; at += p * size; }});"
            " return Array.from(t.values.subarray(at, at + size),"
            " v => Number.isFinite(v) ? v : null); })()"
        )
        return self.js(code)

    def drop(self, name: str, text: str) -> None:
        """Drop a file on the page."""
        self.page.evaluate(
            """([name, text]) => {
              const held = new DataTransfer();
              held.items.add(new File([text], name, { type: "text/csv" }));
              for (const kind of ["dragenter", "dragover", "drop"])
                document.body.dispatchEvent(
                  new DragEvent(kind, { dataTransfer: held, bubbles: true }));
            }""",
            [name, text],
        )

    def saved(self, kind: str) -> tuple[str, bytes]:
        """What a button of the sheet saves: name and bytes."""
        self.page.locator("#open-share").click()
        with self.page.expect_download() as waiting:
            self.page.locator(f'[data-export="{kind}"]').click()
        return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()
