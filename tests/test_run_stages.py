"""Whatever is switched on or off, an experiment ends with a report.

The rows cover every pair of values of any two switches (a covering array, made greedily), on
problems of the same few shapes, so that little is compiled.
"""

from functools import cache
from itertools import combinations, product

import pytest

import thalweg as tw
from thalweg import InputError, experiment, reports

BASE = experiment.from_toml(
    """
    data = {source = "target", matrix = [[0.8, -0.6]]}
    network = {depth = 2, width = 2}
    start = {kind = "aligned", norm = 0.2, cosine = 0.6}
    training = {learning_rate = [0.1, 0.2], steps = 12, records = 12}
    """
)
SWITCHES = {
    "flow.enabled": (True, False),
    "flow.validated": (True, False),
    "flow.tube": ("auto", "off"),
    "curvature.enabled": (True, False),
    "certificates.enabled": (True, False),
    "training.learning_rate": (0.1, (0.1, 60.0), (50.0, 60.0)),  # the large ones diverge
    "training.records": (12, 2),
    "network.depth": (2, 1),
    "loss.weight_decay": (0.0, 0.01),
}


def pairs_of(row):
    return set(combinations(enumerate(row), 2))


def covering_rows():
    """Rows such that any two values of any two switches meet in one: greedily, the best first."""
    rows, everything = [], list(product(*SWITCHES.values()))
    missing = set().union(*map(pairs_of, everything))
    while missing:
        rows.append(max(everything, key=lambda row: len(pairs_of(row) & missing)))
        missing -= pairs_of(rows[-1])
    return rows


ROWS = covering_rows()


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The results, the report's text and the folder of a row: computed when first asked for."""

    @cache
    def of(row):
        folder = tmp_path_factory.mktemp("row")
        changes = dict(zip(SWITCHES, row, strict=True))
        return *report_of(changes, folder), folder

    return of


def test_the_rows_cover_all_pairs():
    assert len(ROWS) <= 16
    for (a, left), (b, right) in combinations(enumerate(SWITCHES.values()), 2):
        for one, other in product(left, right):
            assert any(row[a] == one and row[b] == other for row in ROWS)


def report_of(changes, folder):
    results = experiment.perform(experiment.changed(BASE, changes))
    return results, reports.write(results, folder).read_text("utf-8")


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")  # of runs that diverge
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_pair_of_switches_ends_with_a_report(row, reported):
    changes = dict(zip(SWITCHES, row, strict=True))
    results, text, _ = reported(row)
    assert ("The flow was not asked for" in text) == (not changes["flow.enabled"])
    assert ("What is guaranteed" in text) == changes["certificates.enabled"]
    assert ('id="sharpness"' in text) == changes["curvature.enabled"]
    validated = changes["flow.enabled"] and changes["flow.validated"]
    assert ("the error that is proven of the flow" in text) == validated
    bands = "Bands are certified by each run alone" in text
    assert bands == (not validated and bool((results.proven_until > 0).any()))
    assert not (bands and changes["flow.tube"] == "off")


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("row", [ROWS[0], ROWS[1]], ids=str)
def test_the_same_is_drawn_from_the_disk(row, reported, tmp_path):
    _, text, folder = reported(row)
    assert reports.draw(tw.open(folder), tmp_path).read_text("utf-8") == text


def test_a_flow_that_takes_too_long_to_validate_is_integrated(tmp_path, monkeypatch):
    """Then each run proves its own distance, and the report says how far the flow was proven."""
    from thalweg.dynamics import validated

    monkeypatch.setattr(validated, "_MOST_STEPS", 2)
    less = {"curvature.enabled": False, "certificates.enabled": False}
    results, text = report_of(less, tmp_path)
    assert results.attrs["flow_solver"] == "explicit"
    assert 0 < float(results.flow_error.max()) < 1e-6
    assert "The flow could be validated up to time" in text
    assert "Bands are certified by each run alone" in text


def test_a_start_at_the_minimiser_is_reported(tmp_path):
    """Nothing is above the minimum, so that there is nothing to scale an axis by."""
    changes = {"data.matrix": [[1.0, 0.0], [0.0, 1.0]], "start.kind": "identity"}
    results, text = report_of(changes, tmp_path)
    assert float(results.excess.max()) == 0
    assert 'id="loss"' in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"start.kind": "gaussian", "start.scale": 1e300},
            "`start.scale` = 1e\\+300; take a small",
        ),
        ({"start.norm": 1e200}, "loss at the start must be finite, got inf; take a smaller start"),
        ({"data.matrix": [[1e200, 0.0]]}, "`phi` must be of a size between"),
    ],
)
def test_a_start_without_a_loss_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        experiment.perform(experiment.changed(BASE, changes))
