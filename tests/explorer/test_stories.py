"""The page in a browser: every story to its end, and every number in its texts."""

import re

import pytest
from browsing import Person

# --- stories -------------------------------------------------------------------------------------

NAMES = ["follow", "plateau", "edge", "catapult", "flat", "balance", "margin", "saddles",
         "residual", "kinks"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_story_goes_to_its_end(person, name):
    person.open(wait=False)
    person.until("window.explorer?.tour")
    person.page.locator("#open-stories").click() if person.page.locator(
        "#stories"
    ).is_hidden() else None
    person.page.locator(f'[data-story="{name}"]').click()
    while True:
        person.complete()
        assert person.refusal == ""
        assert person.page.locator(".view.look").count() > 0
        assert f"story={name}." in person.hash
        last = person.page.locator("#tour-next").inner_text() == "Done"
        _hold(person, name)
        person.page.locator("#tour-next").click()
        if last:
            break
    assert person.page.locator("#tour").is_hidden()
    assert "story=" not in person.hash
    assert person.complaints == []


def _hold(person: Person, name: str) -> None:
    """Every number in a text, and what it claims, is what the page shows."""
    step = int(person.page.locator("#tour-place").inner_text().split()[1])
    text = person.page.locator("#tour-text").inner_text()
    for said, expression in FACTS.get((name, step), []):
        value = person.js(f"(() => {{ {_MEASURES} return {expression}; }})()")
        if said is None:
            assert value is True, (name, step, expression)
            continue
        assert said in text, (name, step, said)
        digits = len(re.sub(rf"^[{MINUS}0.]*", "", said).replace(".", ""))
        shown = float(f"{value:.{digits}g}")
        assert shown == pytest.approx(float(said.replace(MINUS, "-"))), (name, step, said, value)


_MEASURES = """
const { results } = explorer;
const run = (part, array) => {
  const { values, shape } = results[part].arrays[array];
  return Array.from(values.subarray(0, shape[1])).filter(Number.isFinite);
};
const first = (...of) => run(...of)[0], last = (...of) => run(...of).at(-1);
const most = (...of) => Math.max(...run(...of)), least = (...of) => Math.min(...run(...of));
const times = () => run("descent", "time");
const above = () => run("descent", "loss").map((loss) => loss - (results.descent.minimum ?? 0));
const half = () => times()[above().findIndex((loss) => loss < above()[0] / 2)];
const edge = () => results.descent.edge[0];
const phase = () => results.sharpness.phases[0];
const mode = (k) => {
  const { values, shape } = results.layers.arrays.product_singular;
  return values[(shape[1] - 1) * shape[2] + k];
};
const falls = () =>
  above().every((loss, at, all) => at === 0 || loss <= all[at - 1] * (1 + 1e-9) + 1e-12);
"""
MINUS = "\N{MINUS SIGN}"
_SHARP = 'sharpness", "sharpness'
FACTS: dict[tuple[str, int], list[tuple[str | None, str]]] = {
    ("follow", 1): [("0.049", 'most("flow", "distance")'), (None, 'phase() === "monotone"')],
    ("follow", 2): [("0.026", 'most("flow", "distance")')],
    ("follow", 3): [
        ("3.8", 'times()[run("flow", "distance").indexOf(most("flow", "distance"))]'),
        (f"{MINUS}2.7", 'least("sharpness", "smallest_eigenvalue")'),
    ],
    ("plateau", 1): [("0.7", "half()"), ("8.25", f'last("{_SHARP}")')],
    ("plateau", 2): [("2.6", "half()")],
    ("plateau", 3): [("3.8", "half()"), ("21.2", f'last("{_SHARP}")')],
    ("plateau", 4): [("7.8", "half()")],
    ("edge", 1): [("21.2", f'last("{_SHARP}")'), ("40", "edge()"), (None, "falls()")],
    ("edge", 2): [("25", "edge()"), ("21.1", f'last("{_SHARP}")')],
    ("edge", 3): [("20", "edge()"), (None, 'phase() === "edge"'), (None, "!falls()")],
    ("catapult", 1): [
        ("27", f'first("{_SHARP}")'), ("20", "edge()"), ("0.031", 'first("descent", "loss")'),
        ("18", 'most("descent", "loss")'),
    ],
    ("catapult", 2): [("8.64", f'last("{_SHARP}")'), (None, 'phase() === "catapult"')],
    ("catapult", 3): [
        ("48", f'first("{_SHARP}")'), ("40", "2 * edge()"),
        (None, "results.descent.diverged_at[0] !== null"),
    ],
    ("flat", 1): [("18.7", "results.sharpness.least_sharpness")],
    ("flat", 2): [("16.7", "edge()"), (None, 'phase() === "oscillating"')],
    ("flat", 3): [("0.107", "2 / results.sharpness.least_sharpness")],
    ("flat", 4): [(None, 'phase() === "saddle"'), (None, "mode(0) < 0.05")],
    ("balance", 1): [
        ("1.25", f'first("{_SHARP}")'), ("2", f'last("{_SHARP}")'), ("20", "edge()"),
    ],
    ("balance", 2): [("6.79", f'first("{_SHARP}")'), (None, 'phase() === "monotone"')],
    ("balance", 3): [(None, "results.descent.diverged_at[0] < 10")],
    ("margin", 1): [("0.125", 'last("descent", "loss")'), (None, 'phase() === "saddle"')],
    ("margin", 2): [(f"{MINUS}0.5", 'last("sharpness", "smallest_eigenvalue")')],
    ("margin", 3): [(None, 'last("descent", "loss") < 1e-25')],
    ("saddles", 1): [("3", "mode(0)"), ("1.5", "mode(1)"), ("0.6", "mode(2)")],
    ("saddles", 2): [(None, "mode(2) > 0.59")],
    ("saddles", 3): [(f"{MINUS}3", 'first("sharpness", "smallest_eigenvalue")')],
    ("residual", 1): [(None, 'phase() === "saddle"'), (None, "mode(0) < 1e-3")],
    ("residual", 2): [(None, "falls()"), (None, "half() < 0.5")],
    ("residual", 3): [(None, "falls()"), (None, f'first("{_SHARP}") > 60')],
    ("kinks", 3): [(None, 'results.certificates.applying > 0')],
}  # fmt: skip
