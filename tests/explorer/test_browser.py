"""The page in a browser: its beginning, every control and every view."""

import re
from urllib.parse import urlsplit

import pytest

# --- beginning -----------------------------------------------------------------------------------


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


def test_arrow_keys_move_the_marker(person):
    person.open().complete()
    canvas = person.page.locator("#view-phases canvas")
    canvas.press("ArrowRight")
    canvas.press("ArrowUp")
    person.complete()
    assert person.field("training.learning_rate")[0] > 0.05
    assert person.field("start.scale") > 0.3
    assert "of 4" in canvas.get_attribute("aria-label")


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


def test_guarantees_have_margins_and_what_is_missed(person):
    person.open().complete()
    assert "theorems apply" in person.page.locator("#guarantees-summary").inner_text()
    person.page.locator("#missed summary").click()
    rows = person.page.locator("#missed .statement")
    assert rows.count() > 5
    assert person.page.locator("#missed .bar .missed").count() > 0
    applying = person.js("explorer.results.certificates.applying")
    assert applying == person.page.locator("#applying .statement").count()
