"""The page in a browser: every control, every view and every way out of it."""

import ast
import csv
import io
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
from browsing import SMALL, Person, browser_path, written

pytest.importorskip("uvicorn", reason="the explorer's tests need thalweg[explore]")

import thalweg as tw
from thalweg import experiment
from thalweg.experiment import Experiment
from thalweg.explorer.parts import PARTS
from thalweg.explorer.serving import Explorer
from thalweg.explorer.session import Session


def needs(*parts: str) -> pytest.MarkDecorator:
    """For what is seen of some parts only where the server has them."""
    missing = [name for name in parts if name not in PARTS]
    return pytest.mark.skipif(bool(missing), reason=f"the server has no {missing} yet")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with Explorer(Session(Experiment()), 0) as explorer:
            yield explorer


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--js-flags=--expose-gc", "--enable-precise-memory-info"],
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def context(browser: Any) -> Iterator[Any]:
    """Most tests share one profile, and a page each would cost more than it tells."""
    made = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield made
    made.close()


@pytest.fixture(scope="session")
def one_page(context: Any, server: Explorer) -> Person:
    return Person(context.new_page(), server.address)


@pytest.fixture
def person(one_page: Person) -> Person:
    one_page.complaints.clear()
    one_page.asked.clear()
    return one_page


@pytest.fixture
def another(browser: Any, server: Explorer) -> Iterator[Any]:
    """Somebody else's browser: a profile of its own."""
    contexts = []

    def make(**settings: Any) -> Person:
        contexts.append(browser.new_context(**settings))
        return Person(contexts[-1].new_page(), server.address)

    yield make
    for each in contexts:
        each.close()


# --- beginning -----------------------------------------------------------------------------------


@needs("flow", "slice", "phase")
def test_page_begins_with_all_views_and_without_a_complaint(person):
    person.open().complete()
    for view in ("loss", "sharpness", "distance", "lowest", "balance", "product", "layers"):
        assert person.page.locator(f"#view-{view} canvas").count() == 1, view
        assert person.page.locator(f"#view-{view} .note").is_hidden(), view
    for view in ("slice", "phases"):
        assert person.page.locator(f"#view-{view} canvas").is_visible(), view
    assert "gradient flow" in person.sentence
    assert person.complaints == []


def test_no_request_leaves_the_machine(person, server):
    person.open().complete()
    host = urlsplit(server.address).netloc
    asked = [urlsplit(url) for url in person.asked if url.startswith("http")]
    assert len(asked) > 10
    assert {each.netloc for each in asked} == {host}
    named = [address for address in _addresses() if "w3.org" not in address]
    assert named == []  # nor could one be made: no file of the page names another host


def _addresses() -> list[str]:
    from importlib.resources import files

    page = files("thalweg.explorer") / "page"
    texts = [page / "index.html", page / "page.css", *(page / "js").iterdir()]
    return [
        found for each in texts for found in re.findall(r"https?://[^\s\"'`)]+", each.read_text())
    ]


def test_page_begins_with_the_setting_of_the_server(another):
    shown = another().open("default")
    assert shown.js("explorer.setting") in ({}, None)
    blank = another()
    blank.page.goto(blank.address)
    blank.settle()
    assert blank.js("explorer.results.descent.rates") == [0.02, 0.05, 0.1, 0.2]
    assert len(blank.page.locator(".compare button").all()) == 4


# --- controls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["training.learning_rate", "training.time", "start.scale", "network.depth", "network.width",
     "data.samples", "data.features", "data.noise"],
)  # fmt: skip
def test_sliders_answer_to_keys(person, name):
    person.open()
    slider = person.page.locator(f"#field-{name.replace('.', '-')}")
    before = person.js("JSON.stringify(explorer.full)")
    slider.press("ArrowRight")
    person.settle()
    assert person.js("JSON.stringify(explorer.full)") != before
    assert name in person.hash
    assert slider.get_attribute("aria-valuetext")
    assert person.refusal == ""


def test_a_number_may_be_typed(person):
    person.open()
    typed = person.page.get_by_label("Depth, as a number")
    typed.fill("3")
    typed.press("Enter")
    person.settle()
    assert person.js("explorer.results.descent.depth") == 3
    typed.fill("")
    typed.press("Enter")
    assert typed.input_value() == "3"


def test_what_is_refused_is_said_in_a_sentence_and_marked(person):
    person.open()
    typed = person.page.get_by_label("Depth, as a number")
    typed.fill("500")
    typed.press("Enter")
    person.until("!document.getElementById('refusal').hidden")
    assert "network.depth" in person.refusal
    assert person.page.locator('[data-field="network.depth"].wrong').count() == 1
    typed.fill("2")
    typed.press("Enter")
    person.settle()
    assert person.refusal == ""


@pytest.mark.parametrize(
    "kind", ["balanced", "residual", "identity", "aligned", "xavier_uniform", "pytorch_default"]
)
def test_kinds_of_start(person, kind):
    person.open()
    person.page.locator("#field-start-kind").select_option(kind)
    person.settle()
    assert person.refusal == ""
    assert f"start.kind={kind}" in person.hash
    assert person.js("explorer.results.descent.part") == "descent"
    if kind == "residual":
        assert person.field("network.readout") is True
        person.page.locator("#field-start-kind").select_option("gaussian")
        person.settle()
        assert person.field("network.readout") is None
        assert person.refusal == ""


@pytest.mark.parametrize("source", ["conditioned", "target", "diabetes", "linnerud"])
def test_kinds_of_data(person, source):
    person.open()
    person.page.locator("#field-data-source").select_option(source)
    person.settle()
    assert person.refusal == ""
    assert f"data.source={source}" in person.hash


def test_a_target_may_be_written(person):
    person.open("data.source=target&data.matrix=[[1,0],[0,1]]&network.depth=2")
    matrix = person.page.locator("#field-data-matrix")
    assert matrix.input_value() == "1 0; 0 1"
    matrix.fill("2, 0; 0 0.5")
    matrix.press("Enter")
    person.settle()
    assert person.field("data.matrix") == [[2, 0], [0, 0.5]]
    assert person.refusal == ""


def test_relu_takes_what_it_can_of_the_setting(person):
    person.open({"start.kind": "balanced"})
    person.page.locator("#field-network-kind").select_option("homogeneous")
    person.settle()
    assert person.refusal == ""
    person.page.locator("#field-network-slope").press("ArrowRight")
    person.settle()
    assert person.field("network.slopes") == [1, 0.05]
    person.page.locator("#field-network-kind").select_option("linear")
    person.settle()
    assert person.refusal == ""


def test_seeds_whitening_and_the_way_back(person):
    person.open()
    person.page.get_by_label("Seed of the start: the next").click()
    person.page.get_by_label("Seed of the data: the next").click()
    person.page.get_by_label("Whitened inputs").check()
    person.settle()
    assert person.field("start.seed") == person.field("data.seed") == 1
    assert person.field("data.white") is True
    person.page.locator("#reset").click()
    person.until("Object.keys(explorer.setting).length === 0")


@needs("flow")
def test_rates_are_kept_for_comparison(person):
    person.open()
    person.page.locator("#keep").click()
    person.settle()
    assert person.field("training.learning_rate") == [0.025, 0.05]
    person.until("explorer.views.curves.loss.chart.lines.length === 3")  # and the flow's
    person.page.locator("#field-training-learning_rate").press("ArrowRight")
    person.settle()
    rates = person.field("training.learning_rate")
    assert rates[0] > 0.025
    assert rates[1:] == [0.05]
    person.page.get_by_label("Stop comparing with 0.05").click()
    person.settle()
    assert person.field("training.learning_rate") == rates[:1]


def test_too_small_a_step_is_kept_within_what_is_computed(person):
    person.open()
    typed = person.page.get_by_label("Learning rate η, as a number")
    typed.fill("0.000001")
    typed.press("Enter")
    person.settle()
    assert person.refusal == ""
    limit = person.js("explorer.begun.limits.steps")
    assert person.js("explorer.results.descent.steps[0]") <= limit


# --- the phase diagram ---------------------------------------------------------------------------


@needs("phase")
def test_a_click_in_the_phase_diagram_goes_there(person):
    person.open().complete()
    box = person.page.locator("#view-phases canvas").bounding_box()
    person.page.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + 0.3 * box["height"])
    person.complete()
    rate, scale = person.field("training.learning_rate")[0], person.field("start.scale")
    assert rate != 0.05
    assert scale != 0.3
    assert person.js("explorer.views.map.rate") == rate
    assert person.js("explorer.results.descent.rates[0]") == rate


@needs("phase")
def test_a_drag_over_the_phase_diagram_takes_the_curves_along(person):
    person.open().complete()
    box = person.page.locator("#view-phases canvas").bounding_box()
    person.page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 100)
    person.page.mouse.down()
    for share in (0.5, 0.6, 0.7):
        person.page.mouse.move(box["x"] + share * box["width"], box["y"] + 100)
    person.page.mouse.up()
    person.complete()
    shown = person.js("explorer.results.descent.rates[0]")
    assert shown == person.field("training.learning_rate")[0]
    assert person.js("explorer.views.map.diagram.done") == 1


@needs("phase")
def test_arrow_keys_move_the_marker(person):
    person.open().complete()
    canvas = person.page.locator("#view-phases canvas")
    canvas.press("ArrowRight")
    canvas.press("ArrowUp")
    person.complete()
    assert person.field("training.learning_rate")[0] > 0.05
    assert person.field("start.scale") > 0.3
    assert "of 4" in canvas.get_attribute("aria-label")


@needs("phase")
def test_every_cell_of_the_diagram_is_filled_and_theory_is_drawn(person):
    person.open().complete()
    cells = person.js("Array.from(explorer.views.map.diagram.cells)")
    assert len(cells) == 40 * 30 * 4
    assert min(cells) >= -1
    assert person.js("explorer.views.map.diagram.lines.length") >= 2
    key = person.js("explorer.views.map.diagram.key")
    person.page.locator("#field-training-learning_rate").press("ArrowRight")
    person.complete()
    assert person.js("explorer.views.map.diagram.key") == key  # and is not computed again


# --- time ----------------------------------------------------------------------------------------


@needs("flow")
def test_one_cursor_is_in_all_views(person):
    person.open().complete()
    person.page.locator("#view-loss .u-over").hover()
    times = person.js(
        "Object.values(explorer.views.curves).map(c => c.plot.posToVal(c.plot.cursor.left, 'x'))"
    )
    assert len(times) == 7
    assert max(times) - min(times) < 0.05
    assert 1 < times[0] < 3
    person.page.mouse.move(5, 5)
    person.until("explorer.views.curves.loss.plot.posToVal("
                 "explorer.views.curves.loss.plot.cursor.left, 'x') > 3.9")  # fmt: skip


def test_a_click_keeps_the_time_and_the_link_has_it(person):
    person.open()
    person.page.locator("#view-sharpness .u-over").click()
    person.page.mouse.move(5, 5)
    shown = person.page.locator("#time-value").inner_text()
    assert shown != "t = 4"
    assert "t=" in person.hash
    person.open(person.hash)
    assert person.page.locator("#time-value").inner_text() == shown


def test_time_by_keys(person):
    person.open()
    loss = person.page.locator("#view-loss .plot")
    loss.press("Home")
    assert loss.get_attribute("aria-valuenow") == "0"
    assert "time 0: descent" in loss.get_attribute("aria-valuetext")
    loss.press("ArrowRight")
    assert loss.get_attribute("aria-valuenow") == "0.04"
    person.page.locator("#time").press("End")
    assert person.page.locator("#time-value").inner_text() == "t = 4"


def test_time_plays_in_steps_where_motion_is_unwanted(person):
    person.open()
    person.page.locator("#play").click()
    assert person.page.locator("#time-value").inner_text() == "t = 0"
    person.page.locator("#play").click()
    assert person.page.locator("#time-value").inner_text() == "t = 0.4"


# --- words and guarantees ------------------------------------------------------------------------


def test_terms_explain_themselves_on_focus(person):
    person.open().complete()
    person.page.locator("#sentences .term").first.focus()
    told = person.page.locator("#explain")
    assert told.is_visible()
    assert len(told.inner_text()) > 30
    person.page.keyboard.press("Escape")
    assert told.is_hidden()


@needs("certificates")
def test_guarantees_have_margins_and_what_is_missed(person):
    person.open().complete()
    assert "published results apply" in person.page.locator("#guarantees-summary").inner_text()
    person.page.locator("#missed summary").click()
    rows = person.page.locator("#missed .statement")
    assert rows.count() > 5
    assert person.page.locator("#missed .bar .missed").count() > 0
    applying = person.js("explorer.results.certificates.applying")
    assert applying == person.page.locator("#applying .statement").count()


# --- links and numbers ---------------------------------------------------------------------------


def test_a_link_shows_the_same_in_another_browser(person, another):
    person.open({"training.learning_rate": "[0.07,0.03]", "start.scale": "0.41", "data.seed": "3"})
    person.complete()
    other = another().open(person.hash).complete()
    assert other.hash == person.hash
    for part, array in (("descent", "loss"), ("sharpness", "sharpness"), ("flow", "distance")):
        assert other.row(part, array) == person.row(part, array), array
    assert other.sentence == person.sentence


def test_the_way_back_of_the_browser(person):
    person.open()
    person.page.evaluate(f"() => {{ location.hash = '{written(SMALL | {'network.depth': '3'})}' }}")
    person.until("explorer.results.descent?.depth === 3")
    person.settle()
    person.page.go_back()
    person.until("explorer.results.descent?.depth === 2")


@pytest.mark.parametrize(
    "broken",
    ["network.depth=many", "nonsense", "data.source=elsewhere", "training.time=%", "a.b=1"],
)
def test_a_broken_link_is_refused_in_a_sentence(person, broken):
    person.open(broken)
    assert person.refusal or person.js("explorer.results.descent !== undefined")
    person.page.locator("#reset").click()
    person.settle()
    assert person.refusal == ""


def test_numbers_are_those_of_the_package(person):
    person.open()
    _, text = person.saved("toml")
    settings = experiment.from_toml(text.decode())
    objective = experiment.objective(settings)
    weights = experiment.start(settings, objective)
    (rate,) = settings.training.learning_rate
    run = tw.descend(
        objective, weights, learning_rate=rate, steps=settings.training.steps_at(rate),
        record_every=settings.training.record_every(rate),
    )  # fmt: skip
    np.testing.assert_array_equal(person.row("descent", "loss", 0), run.loss)


# --- ways out ------------------------------------------------------------------------------------


def test_experiment_file_python_and_command(person):
    person.open({"start.scale": "0.4"})
    name, text = person.saved("toml")
    assert name.endswith(".toml")
    assert tomllib.loads(text.decode())["start"]["scale"] == 0.4
    _, text = person.saved("python")
    ast.parse(text)
    _, text = person.saved("command")
    assert text.decode().startswith("thalweg run")
    assert "start.scale=0.4" in text.decode()


def test_data_has_the_numbers_that_are_shown(person):
    person.open().complete()
    _, text = person.saved("csv")
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    loss = [float(each["loss"]) for each in rows]
    assert loss == person.row("descent", "loss", 0)


@needs("flow", "slice", "phase")
def test_pictures_hold_all_views(person):
    person.open().complete()
    name, text = person.saved("svg")
    assert name == "thalweg.svg"
    drawn = ElementTree.fromstring(text)
    words = {each.text for each in drawn.iter() if each.text}
    assert {"Loss above its minimum", "Sharpness", "Phase diagram"} <= words
    assert sum(1 for _ in drawn.iter("{http://www.w3.org/2000/svg}path")) > 12
    name, pixels = person.saved("png")
    assert name == "thalweg.png"
    assert pixels[:4] == b"\x89PNG"
    assert int.from_bytes(pixels[16:20]) == 2640


def test_the_link_is_copied(person, context):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.open()
    person.page.locator("#open-share").click()
    person.page.locator('[data-export="link"]').click()
    person.until("document.getElementById('status').textContent.startsWith('The link')")
    assert person.js("navigator.clipboard.readText()") == person.page.url


def test_the_sheet_closes_with_escape(person):
    person.open()
    person.page.locator("#open-share").click()
    person.page.locator('[data-export="link"]').focus()
    person.page.keyboard.press("Escape")
    assert person.page.locator("#share").is_hidden()
    assert person.js("document.activeElement.id") == "open-share"


# --- a table of one's own ------------------------------------------------------------------------

TABLE = "height,age,weight\n" + "\n".join(f"{k % 7},{k % 5},{k % 3 + k % 7}" for k in range(30))


def test_a_table_is_dropped_and_trained_on(person):
    person.open()
    person.drop("people.csv", TABLE)
    person.until("explorer.setting.data?.source === 'csv'")
    person.settle()
    assert person.refusal == ""
    assert person.js("explorer.results.descent.samples") == 30
    target = person.page.locator("#field-data-target")
    assert target.input_value() == "weight"
    target.select_option("age")
    person.settle()
    assert person.refusal == ""
    assert person.field("data.target") == ["age"]


@pytest.mark.parametrize(
    "text", ["", "only one line", "a,b\n1,2\n3", "a,b\n1,x\n2,y\n", "\x00\x01", "x" * 2_100_000],
    ids=["empty", "one line", "ragged", "words", "binary", "huge"],
)  # fmt: skip
def test_a_bad_table_is_refused_in_a_sentence(person, text):
    person.open()
    before = person.hash
    person.drop("bad.csv", text)
    person.until("!document.getElementById('refusal').hidden")
    assert person.refusal.endswith(".")
    assert person.hash == before


# --- alive ---------------------------------------------------------------------------------------


def test_two_hundred_fast_moves_end_in_the_right_state_and_leak_nothing(person):
    person.open().complete()
    session = person.page.context.new_cdp_session(person.page)

    def held() -> float:
        session.send("HeapProfiler.collectGarbage")
        return person.js("performance.memory.usedJSHeapSize")

    move = """async () => {
      const slider = document.getElementById("field-training-learning_rate");
      for (let place = 0; place < 200; place += 1) {
        slider.value = String(300 + 2 * place);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await new Promise((done) => setTimeout(done, 5));
      }
      slider.dispatchEvent(new Event("change", { bubbles: true }));
    }"""
    person.page.evaluate(move)
    person.complete()
    before = held()
    person.page.evaluate(move)
    person.complete()
    assert held() < before + 8e6
    rate = person.field("training.learning_rate")[0]
    assert person.js("explorer.results.descent.rates") == [rate]
    assert person.row("descent", "time", 0)[1] % rate == pytest.approx(0, abs=1e-9)
    assert person.complaints == []


def test_two_tabs_do_not_disturb_each_other(person, context, server):
    other = Person(context.new_page(), server.address)
    person.open({"network.depth": "3"}, wait=False)
    other.open({"network.depth": "4"}, wait=False)
    person.settle()
    other.settle()
    assert person.js("explorer.results.descent.depth") == 3
    assert other.js("explorer.results.descent.depth") == 4
    other.page.close()


def test_a_server_that_ends_is_missed_and_found_again(another):
    first = Explorer(Session(Experiment()), 0, "t" * 32).start()
    shown = another()
    shown.address = first.address
    shown.open()
    shown.drop("people.csv", TABLE)
    shown.until("explorer.setting.data?.source === 'csv'")
    shown.settle()
    first.stop()
    shown.page.locator("#field-network-depth").press("ArrowRight")
    shown.until("document.getElementById('status').classList.contains('lost')")
    assert "reconnects" in shown.page.locator("#status").inner_text()
    with Explorer(Session(Experiment()), first.port, "t" * 32):
        shown.until("!document.getElementById('status').classList.contains('lost')")
        shown.settle()
        assert shown.js("explorer.results.descent.depth") == 3
        assert shown.js("explorer.results.descent.samples") == 30  # the table was given again
        shown.page.close()


# --- how it looks --------------------------------------------------------------------------------


def test_colours_follow_the_system_and_the_button(another):
    shown = another(color_scheme="dark").open()
    assert shown.js("document.documentElement.dataset.theme") == "dark"
    back = "getComputedStyle(document.body).backgroundColor"
    dark = shown.js(back)
    shown.page.locator("#theme").click()
    assert shown.js("document.documentElement.dataset.theme") == "light"
    assert shown.js(back) != dark
    shown.page.locator("#theme").click()
    assert shown.js("document.documentElement.dataset.theme") == "dark"
    assert "dark" in shown.page.locator("#theme").get_attribute("aria-label")


@pytest.mark.parametrize("width", [390, 820, 1200, 2560])
def test_nothing_is_wider_than_the_screen(person, width):
    person.page.set_viewport_size({"width": width, "height": 800})
    try:
        person.open()
        assert person.js("document.documentElement.scrollWidth") <= width
        if width == 390:
            person.page.locator("#more").click()
            assert person.page.locator("#field-network-depth").is_visible()
            assert person.page.locator("#field-training-learning_rate").is_visible()
    finally:
        person.page.set_viewport_size({"width": 1280, "height": 900})


def test_all_can_be_reached_by_keys(person):
    person.open()
    person.page.keyboard.press("Tab")
    assert person.js("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(90):
        person.page.keyboard.press("Tab")
        reached.add(person.js(
            "document.activeElement.id || document.activeElement.closest('.view')?.id || ''"
        ))  # fmt: skip
    wanted = {"open-share", "theme", "field-training-learning_rate", "field-network-depth", "play",
              "time", "view-loss", "view-phases"}  # fmt: skip
    assert wanted <= reached


@pytest.mark.parametrize("how", ["light", "dark", "narrow"])
def test_axe_finds_nothing_serious(another, how):
    source = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        pytest.skip("axe-core is needed: npm install --no-package-lock in tests/explorer")
    shown = another(
        bypass_csp=True, color_scheme="dark" if how == "dark" else "light",
        viewport={"width": 390 if how == "narrow" else 1280, "height": 900},
    )  # fmt: skip
    shown.open().complete()
    shown.page.evaluate(source.read_text())
    shown.page.evaluate("() => document.querySelectorAll('details').forEach(e => (e.open = true))")
    found = shown.page.evaluate("async () => (await axe.run(document)).violations")
    bad = [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
        for each in found if each["impact"] in ("serious", "critical") for node in each["nodes"]
    ]  # fmt: skip
    assert bad == []


# --- stories -------------------------------------------------------------------------------------

NAMES = ["follow", "plateau", "edge", "catapult", "flat", "balance", "margin", "saddles",
         "residual", "kinks"]  # fmt: skip


@needs("flow", "slice", "certificates")
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
