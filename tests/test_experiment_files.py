"""Experiment files: any valid experiment survives TOML, any wrong file gets one sentence."""

import importlib.util
import re
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg import InputError, cli, experiment
from thalweg.experiment import data_settings
from thalweg.experiment import settings as parts

ROOT = Path(__file__).parents[1]

seeds = st.integers(0, 2**31 - 1)
counts = st.integers(1, 400)
positive = st.floats(1e-300, 1e300)
not_negative = st.floats(0, 1e300)
words = st.text(string.printable + "äη→\x7f", max_size=12)
number_lists = st.lists(positive, min_size=1, max_size=4, unique=True).map(tuple)
digits = st.lists(st.integers(0, 9), min_size=2, max_size=5, unique=True).map(tuple)
rows = st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=3).map(tuple)

REAL_TARGETS = [
    st.builds(
        data_settings.GaussianData, samples=counts, features=counts, noise=not_negative,
        white=st.booleans(), seed=seeds,
    ),
    st.builds(
        data_settings.ConditionedData, samples=counts, features=counts, outputs=counts,
        condition=st.floats(1, 1e9), noise=not_negative, seed=seeds,
    ),
    st.builds(data_settings.TableData, source=st.sampled_from(["diabetes", "linnerud"]),
              standardise=st.booleans(), white=st.booleans()),
    st.builds(data_settings.CsvData, path=words, target=st.lists(words, max_size=3).map(tuple),
              standardise=st.booleans(), white=st.booleans()),
]  # fmt: skip
TARGETS = st.builds(data_settings.TargetData, matrix=rows)
IMAGES = st.one_of(
    st.builds(data_settings.ImageData, source=st.just("digits"), samples=st.none() | counts,
              only=st.none() | digits),
    st.builds(data_settings.ImageData, source=st.just("mnist"), path=st.none() | words),
)  # fmt: skip
LENGTHS = st.one_of(
    st.builds(
        parts.Training, learning_rate=number_lists, steps=st.integers(1, 10**9), records=counts
    ),
    st.builds(parts.Training, learning_rate=st.just((1.0, 0.1)), time=st.floats(1, 1e9)),
)
FLOWS = st.builds(
    parts.FlowSettings, enabled=st.booleans(), rtol=st.floats(1e-12, 0.9), atol=positive,
    tube=st.sampled_from(["auto", "exact", "norms", "off"]),
)  # fmt: skip
CERTIFICATES = st.builds(
    parts.CertificateSettings, enabled=st.booleans(),
    target_loss=st.none() | st.floats(-1e9, 1e9), radius=positive,
)  # fmt: skip


@st.composite
def networks(draw, kind, readout):
    """Layers by depth and width, or one by one."""
    seed = draw(seeds)
    slopes = draw(st.tuples(st.floats(-2, 2), st.floats(-2, 2)))
    shared = {"kind": kind, "readout": readout, "slopes": slopes, "seed": seed}
    if draw(st.booleans()):
        hidden = draw(st.lists(counts, max_size=4).map(tuple))
        return parts.NetworkSettings(hidden=hidden, **shared)
    depth, width = draw(st.none() | counts), draw(st.none() | counts)
    return parts.NetworkSettings(depth=depth, width=width, **shared)


@st.composite
def starts(draw, linear, readout):
    """Those that a network of this kind may have."""
    kinds = ["gaussian", *(["balanced"] if linear else []), *(["residual"] if readout else [])]
    drawn = st.builds(
        parts.DrawnStart, kind=st.sampled_from(kinds), scale=not_negative,
        zero_last_layer=st.booleans(), seed=seeds,
    )  # fmt: skip
    common = st.builds(
        parts.CommonStart, kind=st.sampled_from(["xavier_uniform", "pytorch_default"]), seed=seeds
    )
    aligned = st.builds(
        parts.AlignedStart, kind=st.just("aligned"), norm=positive, cosine=st.floats(-1, 1)
    )
    identity = st.just(parts.IdentityStart(kind="identity"))
    unbalanced = st.builds(
        parts.UnbalancedStart, kind=st.just("unbalanced"), product=positive,
        factor=st.floats(1, 1e6),
    )  # fmt: skip
    own = [aligned, unbalanced] if linear else []
    return draw(st.one_of(drawn, common, identity, *own))


@st.composite
def experiments(draw):
    """Valid experiments of every kind."""
    data = draw(st.one_of(*REAL_TARGETS, TARGETS, IMAGES))
    linear = isinstance(data, data_settings.TargetData) or draw(st.booleans())
    readout = linear and draw(st.booleans())
    losses = ["auto", "square"]
    if isinstance(data, data_settings.ImageData):
        losses += ["cross_entropy", *(["logistic", "exponential"] if data.classes == 2 else [])]
    return parts.Experiment(
        title=draw(words),
        data=data,
        network=draw(networks("linear" if linear else "homogeneous", readout)),
        loss=parts.LossSettings(
            kind=draw(st.sampled_from(losses)),
            scale=draw(positive),
            weight_decay=draw(not_negative),
        ),
        start=draw(starts(linear, readout)),
        training=draw(LENGTHS),
        flow=draw(FLOWS),
        curvature=parts.CurvatureSettings(records=draw(st.none() | counts)),
        certificates=draw(CERTIFICATES),
        output=parts.Output(folder=draw(words)),
        sweep=draw(st.sampled_from([(), ({"start.scale": [0.1, 0.2]}, {"network.depth": [2]})])),
    )


@settings(max_examples=50)
@given(experiments())
def test_any_experiment_survives_toml(given_one):
    text = experiment.to_toml(given_one)
    read_back = experiment.from_toml(text)
    assert read_back == given_one
    assert experiment.to_toml(read_back) == text
    # Comments are for readers: they change nothing.
    assert experiment.from_toml(experiment.to_toml(given_one, comments=True)) == given_one


def test_the_empty_file_is_the_builtin_experiment():
    assert experiment.from_toml("") == experiment.Experiment()


def test_a_change_drops_what_it_excludes():
    built_in = experiment.Experiment()
    other = experiment.changed(built_in, {"start.kind": "aligned", "start.cosine": 0.9})
    assert other.start == parts.AlignedStart(kind="aligned", cosine=0.9)
    timed = experiment.changed(built_in, {"training.time": 3.0})
    assert experiment.changed(timed, {"training.steps": 7}).training.time is None
    deep = experiment.changed(built_in, {"network.depth": 4})
    assert experiment.changed(deep, {"network.hidden": [3, 2]}).network.depth is None


def test_the_order_of_changes_does_not_matter():
    """A field of the new kind may be named before the kind."""
    changes = {"start.norm": 0.2, "start.kind": "aligned"}
    one = experiment.changed(experiment.Experiment(), changes)
    other = experiment.changed(experiment.Experiment(), dict(reversed(changes.items())))
    assert one == other
    assert one.start.norm == 0.2
    with pytest.raises(InputError, match="noise"):
        experiment.changed(experiment.Experiment(), {"data.noise": 0, "data.source": "diabetes"})


def test_records_are_an_odd_number_of_steps_apart():
    training = experiment.from_values({"training": {"steps": 320, "records": 160}}).training
    assert training.record_every(0.1) == 3


def test_paths_of_data_follow_the_file(tmp_path):
    before = experiment.from_toml('data = {source = "csv", path = "own.csv", target = "y"}')
    after = experiment.moved(before, tmp_path / "here", tmp_path / "out" / "there")
    assert after.data.path == str(Path("..") / ".." / "here" / "own.csv")
    absolute = experiment.changed(before, {"data.path": str(tmp_path / "own.csv")})
    assert experiment.moved(absolute, tmp_path, tmp_path / "there") == absolute


WRONG = {
    "a field misspelt": ("[network]\ndepht = 3", r"`network.depht` .* did you mean `depth`\?"),
    "a table misspelt": ("[netwrk]\ndepth = 3", r"`netwrk` .* did you mean `network`\?"),
    "a field that no table has": ("[flow]\nbanana = 1", r"`flow.banana` .* known are enabled, "),
    "a field at the top": ("depth = 3", r"`depth` must not be set"),
    "another source's field": ("[data]\ncondition = 9.0", r"`data.condition` must not be set"),
    "an unknown source": ('[data]\nsource = "diabets"', r"did you mean `diabetes`\?"),
    "an unknown start": ('[start]\nkind = "zero"', r"`start.kind` must be one of gaussian, "),
    "a word for a number": ('[network]\ndepth = "ten"', r"`network.depth` must be a valid integer"),
    "a fraction of layers": ("[network]\ndepth = 2.5", r"`network.depth` must be .*integer"),
    "no layers": ("[network]\ndepth = 0", r"`network.depth` must be greater than or equal to 1"),
    "a number for a truth": ("[data]\nwhite = 1", r"`data.white` must be a valid boolean"),
    "a table for a number": ("[training]\ntime = {}", r"`training.time` must be a valid number"),
    "a number for a table": ("training = 3", r"`training` must be a table of fields, got 3"),
    "a number for a list": ("[network]\nhidden = 3", r"`network.hidden` must be a list"),
    "a rate of zero": ("[training]\nlearning_rate = 0.0", r"learning_rate\[0\]` must be greater"),
    "a rate below zero": ("[training]\nlearning_rate = [0.1, -0.1]", r"learning_rate\[1\]` must"),
    "an infinite rate": ("[training]\nlearning_rate = inf", r"rate\[0\]` must be a finite"),
    "no rate": ("[training]\nlearning_rate = []", r"`training.learning_rate` .*at least 1 item"),
    "a rate twice": ("[training]\nlearning_rate = [0.1, 0.1]", r"must have different values"),
    "time and steps": ("[training]\ntime = 1.0\nsteps = 5", r"either `time` or `steps`, not both"),
    "less than a step": ("[training]\ntime = 0.01", r"must have a `time` of at least one step"),
    "two descriptions": ("[network]\ndepth = 2\nhidden = [3]", r"either `hidden` or `depth`"),
    "a residual start": ('[start]\nkind = "residual"', r": A residual `start` needs a linear"),
    "balance without lines": (
        '[network]\nkind = "homogeneous"\n[start]\nkind = "balanced"',
        r": The balanced `start` needs a linear network",
    ),
    "labels of real targets": ('[loss]\nkind = "logistic"', r": The logistic `loss` needs labels"),
    "two classes of ten": (
        '[data]\nsource = "digits"\n[loss]\nkind = "logistic"',
        r"needs two classes, but `data` has 10; name two digits in `data.only`",
    ),
    "one class": ('[data]\nsource = "digits"\nonly = [3]', r"two or more different digits"),
    "rows of two lengths": (
        '[data]\nsource = "target"\nmatrix = [[1.0], [1.0, 2.0]]', r"rows of one length",
    ),
    "no file named": ('[data]\nsource = "csv"\ntarget = "y"', r"`data.path` must be given"),
    "no such file": ('[data]\nsource = "csv"\npath = "none.csv"\ntarget = "y"', r"none\.csv"),
    "no such column": ('[data]\nsource = "csv"\npath = "own.csv"\ntarget = "z"', r"'?z'?.*"),
    "a word in a column": ('[data]\nsource = "csv"\npath = "bad.csv"\ntarget = "y"', r"bad\.csv"),
    "a constant column": ('[data]\nsource = "csv"\npath = "flat.csv"\ntarget = "y"', r"constant"),
    "no MNIST": ('[data]\nsource = "mnist"\npath = "nowhere"', r"nowhere"),
    "too many images": ('[data]\nsource = "digits"\nsamples = 9999', r"`data.samples` must be at"),
    "several outputs aligned": (
        '[data]\nsource = "linnerud"\n[start]\nkind = "aligned"', r"one output",
    ),
    "not TOML": ("[network\ndepth = 3", r"must be TOML"),
    "a key twice": ("title = 'a'\ntitle = 'b'", r"must be TOML"),
}  # fmt: skip


@pytest.fixture
def complaint(monkeypatch, capsys, tmp_path):
    """What `thalweg run` on a file says; it must end with code 2, one sentence and no results."""

    def run(file):
        out = tmp_path / "out"
        monkeypatch.setattr(sys, "argv", ["thalweg", "run", str(file), "--out", str(out)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr().err.strip()
        assert stop.value.code == 2
        assert said.startswith("error: ")
        assert "Traceback" not in said
        assert not out.exists()
        assert len(said.splitlines()) == 1
        return said

    return run


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_gets_one_sentence(complaint, tmp_path, name):
    (tmp_path / "own.csv").write_text("x,y\n1,2\n2,1\n3,5\n")
    (tmp_path / "bad.csv").write_text("x,y\n1,2\nmany,1\n")
    (tmp_path / "flat.csv").write_text("x,y\n1,2\n1,3\n1,5\n")
    file = tmp_path / "experiment.toml"
    text, sentence = WRONG[name]
    file.write_text(text)
    assert re.search(sentence, complaint(file))


def test_what_is_no_text_file_gets_one_sentence(complaint, tmp_path):
    assert "must be a file that can be read" in complaint(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    assert "must be a file that can be read" in complaint(tmp_path / "folder.toml")
    (tmp_path / "latin.toml").write_bytes("title = 'é'".encode("latin-1"))
    assert "UTF-8" in complaint(tmp_path / "latin.toml")


def test_a_change_of_a_field_that_is_not_there_is_refused():
    for name, hint in (("network.dept", "`network.depth`"), ("netwrk.depth", "`network.depth`")):
        with pytest.raises(InputError, match=f"did you mean {hint}|did you mean `depth`"):
            experiment.changed(experiment.Experiment(), {name: 3})


def test_every_example_is_valid_and_brings_its_data():
    files = sorted((ROOT / "examples").glob("*.toml"))
    assert {file.stem for file in files} >= {
        "arora2019", "elkabetz2021", "marion2024", "diabetes", "digits", "csv",
    }  # fmt: skip
    for file in files:
        found = experiment.read(file)
        path = getattr(found.data, "path", None)
        assert path is None or (file.parent / path).exists()


def test_the_page_of_all_fields_is_current_and_complete():
    place = ROOT / "docs" / "write_experiments.py"
    spec = importlib.util.spec_from_file_location("write_experiments", place)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text("utf-8") == script.page(), "run `make docs`"
    described = [line.split(" | ") for line in script.page().splitlines() if line.startswith("| `")]
    assert len(described) > 50
    assert all(len(cells) == 4 and cells[3].strip(" |") for cells in described)
