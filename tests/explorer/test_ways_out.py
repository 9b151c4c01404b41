"""The page in a browser: links, numbers and files, tables, what happens fast, and how it looks."""

import ast
import csv
import io
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browsing import SMALL, Person, written

import thalweg as tw
from thalweg import experiment
from thalweg.experiment import Experiment
from thalweg.explorer.serving import Explorer
from thalweg.explorer.session import Session

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


def test_a_link_to_a_table_that_is_gone_is_refused_once(person):
    """Another table that was dropped here is not given again and again in its place."""
    person.open()
    person.drop("people.csv", TABLE)
    person.until("explorer.setting.data?.source === 'csv'")
    person.settle()
    person.asked.clear()
    gone = "data.source=csv&data.path=data-0123456789.csv&data.target=[%22y%22]"
    person.page.evaluate(f"() => {{ location.hash = '{gone}' }}")
    person.until("!document.getElementById('refusal').hidden")
    person.page.wait_for_timeout(1000)
    assert "dropped on the page" in person.refusal
    assert len([each for each in person.asked if each.endswith("api/data")]) <= 1


def test_of_two_tables_the_last_one_stays(person):
    person.open()
    held = """async () => {
      const give = (text) => explorer.tables.give(new File([text], "t.csv"));
      const post = window.fetch;
      let slow = true;
      window.fetch = async (...asked) => {
        const late = slow && String(asked[0]).endsWith("api/data");
        slow = slow && !late;
        const answer = await post(...asked);
        if (late) await new Promise((done) => setTimeout(done, 400));
        return answer;
      };
      await Promise.all([give("a,b\\n1,2\\n2,1\\n"), give("c,d\\n1,2\\n2,1\\n")]);
      window.fetch = post;
    }"""
    person.page.evaluate(held)
    person.settle()
    assert person.field("data.target") == ["d"]


def test_lines_of_another_diagram_go_with_it(person):
    person.open().complete()
    lines = "explorer.views.map.diagram.lines.length"
    assert person.js(lines) > 0
    person.js("explorer.views.map.diagram.begin({...explorer.results.phase, key: 'other'})")
    assert person.js(lines) == 0


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
