"""Data: oracles by NumPy, files written on the spot, and one clear sentence for each bad input."""

import gzip
import struct
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import InputError, Regression, TargetMatrix, data


@pytest.mark.parametrize(("samples", "features"), [(50, 5), (4, 7)])
def test_gaussian_regression_has_a_unit_minimiser(samples, features):
    """Oracle: NumPy's pseudo-inverse."""
    x, y, w_star = data.gaussian_regression(jax.random.key(3), samples, features)
    assert x.shape == (samples, features)
    assert y.shape == (samples,)
    # Both solve the same small, well-conditioned system: a few hundred roundings at most.
    np.testing.assert_allclose(w_star, np.linalg.pinv(x) @ np.asarray(y), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(w_star), 1, rtol=1e-14)


def test_gaussian_regression_over_keys_has_the_law_it_claims():
    """Inputs are standard, and residuals have the noise's size relative to the teacher."""
    keys = jax.random.split(jax.random.key(1), 400)
    many = jax.vmap(lambda key: data.gaussian_regression(key, 40, 4, noise=2.0))(keys)
    for batched, single in zip(many, data.gaussian_regression(keys[2], 40, 4, 2.0), strict=True):
        # A batched decomposition may round otherwise than a single one.
        np.testing.assert_allclose(batched[2], single, atol=1e-12)
    x, y, w_star = (np.asarray(part) for part in many)
    # 64000 entries: the mean deviates by 1/253 and the variance by sqrt(2)/253; allow 5 times that.
    assert abs(np.mean(x)) < 5 / 253
    assert abs(np.var(x) - 1) < 5 * 2**0.5 / 253
    residual = y - np.einsum("kij,kj->ki", x, w_star)
    noise = np.sum(residual**2, axis=1) / (40 - 4)  # = 4 / |w0|^2 in expectation, given w0
    # |w0|^2 is about (1 + 4 / 35) times a chi-square with four degrees of freedom, whose inverse
    # has mean 1/2; the inverse's variance is infinite, so the band is wide, yet noise of another
    # size (1 or 3) would be a factor of 3.6 or 2.1 off.
    assert 0.75 < np.mean(noise / 4) * 2 * (1 + 4 / 35) < 1.4


def test_without_noise_the_targets_are_met():
    x, y, w_star = data.gaussian_regression(jax.random.key(3), noise=0.0)
    np.testing.assert_allclose(x @ w_star, y, atol=1e-13)  # fifty products of size one


@pytest.mark.parametrize(("condition", "outputs"), [(1.0, 1), (1e8, 1), (1e2, 3)])
def test_conditioned_regression_has_the_spectrum_asked_for(condition, outputs):
    generate = jax.jit(data.conditioned_regression, static_argnums=(1, 2, 4))
    x, y, w_star = generate(jax.random.key(5), 30, 6, condition, outputs, 0.1)
    lengths = np.linalg.svd(np.asarray(x), compute_uv=False) / np.sqrt(30)
    expected = np.logspace(0, -np.log10(condition), 6)
    # Singular values are right to rounding of the largest, hence to 1e4 * 1e-15 of the smallest.
    np.testing.assert_allclose(lengths**2, expected, rtol=1e-10)
    assert w_star.shape == ((6,) if outputs == 1 else (outputs, 6))
    np.testing.assert_allclose(np.linalg.norm(w_star), 1, rtol=1e-13)
    # The minimiser that the problem finds: the noise in solutions is condition^(1/2) roundings.
    found = np.squeeze(np.asarray(Regression(x, y).minimiser))
    np.testing.assert_allclose(found, w_star, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda key: data.gaussian_regression(key, samples=0), "samples.*>= 1, got 0"),
        (lambda key: data.gaussian_regression(key, noise=-1.0), "noise.*>= 0, got -1"),
        (lambda key: data.conditioned_regression(key, 5, 8, 10.0), "at least `features`"),
        (lambda key: data.conditioned_regression(key, 9, 8, 0.5), "condition.*>= 1, got 0.5"),
        (lambda key: data.conditioned_regression(key, 9, 1, 2.0), "features.*>= 2"),
    ],
)
def test_generators_refuse(call, message):
    with pytest.raises(InputError, match=message):
        call(jax.random.key(0))


@given(seed=st.integers(0, 2**31 - 1), shape=st.sampled_from([(50, 3, 2), (9, 4, 1)]))
def test_whitened_least_squares_approximates_a_matrix(seed, shape):
    """Property: data loss = |W - Phi|^2 / 2 + constant, and the way back predicts the same."""
    samples, features, outputs = shape
    rng = np.random.default_rng(seed)
    mixing = np.eye(features) + 0.3 * rng.standard_normal((features, features))
    x = rng.standard_normal((samples, features)) @ mixing + 1.0
    y = rng.standard_normal((samples, outputs))
    white = data.whiten(x)
    condition = np.linalg.cond(x)
    # Whitening multiplies the rounding of x by its condition number.
    slack = 1e-13 * condition
    moment = np.asarray(white.x.T @ white.x) / samples
    np.testing.assert_allclose(moment, np.eye(features), atol=slack)
    phi = y.T @ np.asarray(white.x) / samples
    constant = (np.sum(y**2) / samples - np.sum(phi**2)) / 2
    matrix = rng.standard_normal((outputs, features))
    loss = float(Regression(white.x, y).value(jnp.asarray(matrix)))
    np.testing.assert_allclose(
        loss, float(TargetMatrix(phi).value(jnp.asarray(matrix))) + constant, rtol=100 * slack
    )
    raw = np.asarray(white.matrix_on_raw(matrix))
    np.testing.assert_allclose(x @ raw.T, white.transform(x) @ matrix.T, atol=100 * slack)
    np.testing.assert_allclose(white.transform(x), white.x, atol=100 * slack)


def test_whitening_is_the_symmetric_root():
    """Oracle: NumPy's eigenvectors of the moment, and a published constant of this very sample."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 50)).T, rng.standard_normal((2, 50)).T
    white = data.whiten(x)
    values, vectors = np.linalg.eigh(x.T @ x / 50)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    np.testing.assert_allclose(white.transformation, root, atol=1e-13)  # a condition below 2
    assert (white.rank, white.dropped) == (3, 0)
    phi = y.T @ np.asarray(white.x) / 50
    constant = (np.sum(y**2) / 50 - np.sum(phi**2)) / 2
    np.testing.assert_allclose(constant, 1.0339117155987316, rtol=1e-14)  # arora2019:eq1


def test_whitening_drops_directions_without_data():
    rng = np.random.default_rng(1)
    thin = rng.standard_normal((20, 3))
    x = thin @ rng.standard_normal((3, 5))
    white = data.whiten(x)
    assert (white.rank, white.dropped) == (3, 2)
    # A condition number of about ten times rounding.
    np.testing.assert_allclose(white.x.T @ white.x / 20, np.eye(3), atol=1e-13)
    matrix = rng.standard_normal((2, 3))
    np.testing.assert_allclose(x @ white.matrix_on_raw(matrix).T, white.x @ matrix.T, atol=1e-12)


def test_fewer_samples_than_features_have_their_rank():
    white = data.whiten(np.random.default_rng(1).standard_normal((3, 5)))
    assert white.rank == 3


@pytest.mark.parametrize("outputs", [None, 2])
def test_normalised_labels_have_a_unit_cross_moment(outputs):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 4))
    y = rng.standard_normal(30 if outputs is None else (30, outputs))
    normal = data.normalise_labels(x, y)
    # Two roundings.
    np.testing.assert_allclose(np.linalg.norm(np.asarray(normal.y).T @ x) / 30, 1, rtol=1e-14)
    np.testing.assert_allclose(normal.factor * normal.y, y, rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data.whiten(np.zeros((4, 2))), "must not be zero"),
        (lambda: data.whiten(np.ones(4)), r"one row per sample.*got shape \(4,\)"),
        (lambda: data.whiten(np.full((4, 2), np.nan)), "must be finite"),
        (lambda: jax.vmap(data.whiten)(jnp.ones((2, 4, 2))), "outside of jit and vmap"),
        (lambda: data.normalise_labels(np.ones((4, 2)), np.zeros(4)), "cross moment is zero"),
        (
            lambda: data.normalise_labels(np.ones((4, 2)), np.array([1, -1, 0.1, -0.1])),
            "cross moment is zero",
        ),
        (lambda: data.normalise_labels(np.ones((4, 2)), np.zeros(3)), "one row per sample"),
    ],
)
def test_whitening_refuses(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="table.csv"):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write_file


def test_csv_with_one_target(write):
    file = write("\ufeffage, dose,outcome\n1,2.5,3\n\n-4,5e-1, 6 \n")
    table = data.from_csv(file, "outcome")
    np.testing.assert_array_equal(table.x, [[1, 2.5], [-4, 0.5]])
    np.testing.assert_array_equal(table.y, [3, 6])
    assert (table.features, table.targets) == (("age", "dose"), ("outcome",))
    assert table.x.dtype == table.y.dtype == jnp.float64


def test_csv_with_more_targets_keeps_their_order(write):
    table = data.from_csv(str(write("a,b,c\n1,2,3\n4,5,6\n")), ["c", "a"])
    np.testing.assert_array_equal(table.y, [[3, 1], [6, 4]])
    assert (table.features, table.targets) == (("b",), ("c", "a"))


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        ("", "y", "has no lines"),
        ("a,y\n", "y", "no rows below its column names"),
        ("alpha,outcome\n1,2\n", "outcom", "did you mean 'outcome'"),
        ("alpha,outcome\n1,2\n", "zzz", r"the columns are \['alpha', 'outcome'\]"),
        ("a;y\n1;2\n", "y", "separated by commas"),
        ("a,y\n1,2\n3,4,5\n", "y", "one cell per column .2., but line 3 has 3"),
        ("a,y\n1,2\nx,3\n", "y", "got 'x' in line 3, column 'a'"),
        ("a,y\nred,2\nblue,3\n", "y", "Column 'a'.*words such as 'red'.*encode"),
        ("a,y\nred,2\n,3\n", "y", "words such as 'red'"),
        ("a,y\n1,2\n,3\n", "y", "got an empty cell in line 3, column 'a'"),
        ("a,y\n1,2\nNaN,3\n", "y", "got NaN in line 3, column 'a'"),
        ("a,y\n1,inf\n", "y", "got inf in line 2, column 'y'"),
        ("1,2\n3,4\n", "y", "first line holds numbers"),
        ("a,a,y\n1,2,3\n", "y", "'a' comes twice"),
        (",a,y\n0,1,2\n", "y", "column 1 has no name.*counts the rows"),
        ("y\n1\n", "y", "a column besides the target"),
        ("a,y\n1,2\n", [], "name at least one column"),
        ("a,y\n1,2\n", ["y", "y"], "each once"),
        (b"a,y\n\xff\xfe,2\n", "y", "in UTF-8"),
    ],
)
def test_csv_refuses_in_one_sentence(write, content, target, message):
    with pytest.raises(InputError, match=message) as refusal:
        data.from_csv(write(content), target)
    assert "\n" not in str(refusal.value)


def test_csv_says_when_there_is_no_file(tmp_path):
    with pytest.raises(InputError, match=r"absent.csv: No such file"):
        data.from_csv(tmp_path / "absent.csv", "y")
    with pytest.raises(InputError, match="Is a directory"):
        data.from_csv(tmp_path, "y")


def test_sets_of_scikit_learn():
    """Oracle: their published shapes, and one value of each."""
    diabetes, linnerud, digits = data.diabetes(), data.linnerud(), data.digits()
    assert (diabetes.x.shape, diabetes.y.shape) == ((442, 10), (442,))
    assert (diabetes.features[2], diabetes.targets) == ("bmi", ("progression",))
    assert float(diabetes.y[0]) == 151
    assert (linnerud.x.shape, linnerud.y.shape) == ((20, 3), (20, 3))
    assert (linnerud.features[0], linnerud.targets[0]) == ("Chins", "Weight")
    assert float(linnerud.y[0, 0]) == 191
    assert (digits.x.shape, digits.labels.shape) == ((1797, 64), (1797,))
    assert list(np.unique(digits.labels)) == list(range(10))
    assert all(part.dtype == jnp.float64 for part in (diabetes.x, linnerud.x, digits.x))


def test_importing_the_data_loads_no_scikit_learn():
    code = "import thalweg.data, sys; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def idx(values, magic=None, sizes=None):
    """An IDX file of bytes, written by hand."""
    sizes = values.shape if sizes is None else sizes
    magic = 0x800 + values.ndim if magic is None else magic
    head = struct.pack(f">{1 + len(sizes)}I", magic, *sizes)
    return head + values.astype(np.uint8).tobytes()


IMAGES = np.arange(5 * 4).reshape(5, 2, 2) * 10
LABELS = np.array([3, 1, 4, 1, 5])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(IMAGES))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS)))
    return tmp_path


def test_mnist_from_a_folder(folder):
    found = data.mnist(folder)
    expected = (IMAGES.reshape(5, 4) / 255 - 0.1307) / 0.3081
    np.testing.assert_allclose(found.x, expected, rtol=1e-15)
    np.testing.assert_array_equal(found.labels, LABELS)
    for images, places in ((2, [0, 1]), (range(0, 5, 2), [0, 2, 4]), ([4, 1], [4, 1])):
        some = data.mnist(str(folder), images=images)
        np.testing.assert_array_equal(some.x, found.x[np.array(places)])
        np.testing.assert_array_equal(some.labels, LABELS[places])


def test_mnist_is_found_by_environment_and_cache(folder, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(folder))
    assert len(data.mnist().labels) == 5
    monkeypatch.delenv("THALWEG_DATA")
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with pytest.raises(InputError, match=r"thalweg/mnist; download .* THALWEG_DATA"):
        data.mnist()
    (cache / "thalweg").mkdir()
    (cache / "thalweg" / "mnist").symlink_to(folder)
    assert len(data.mnist().labels) == 5


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "train-images-idx3-ubyte",
            idx(IMAGES, magic=0x801),
            "magic number 0x00000803.*0x00000801",
        ),
        ("train-images-idx3-ubyte", idx(IMAGES)[:-3], "hold 20 values.*got 17"),
        ("train-images-idx3-ubyte", b"\0\0", "ends in its header"),
        ("train-images-idx3-ubyte", idx(IMAGES[:4]), "4 images and 5 labels"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(LABELS))[:-9], "cannot be read.*cut off"),
    ],
    ids=["magic number", "short images", "short header", "unequal counts", "short gzip"],
)
def test_mnist_refuses_broken_files(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        data.mnist(folder)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (9, r"0, ..., 4, got 0 to 8"),
        ([-1], "got -1 to -1"),
        ([], "at least one"),
        (np.array([0.5]), "a whole number"),
        (0, ">= 1"),
    ],
)
def test_mnist_refuses_images_that_are_not_there(folder, images, message):
    with pytest.raises(InputError, match=message):
        data.mnist(folder, images=images)


def test_mnist_says_which_part_is_missing(folder):
    with pytest.raises(InputError, match="t10k-images-idx3-ubyte"):
        data.mnist(folder, part="test")


@pytest.mark.mnist
def test_the_real_mnist(mnist_path):
    """Oracle: the first labels, and that the mean and deviation are the known ones."""
    train = data.mnist(mnist_path)
    assert train.x.shape == (60_000, 784)
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    # .1307 and .3081 are rounded to four decimals.
    assert abs(np.mean(train.x)) < 5e-5 / 0.3081
    assert abs(np.std(train.x) - 1) < 5e-5 / 0.3081
    some = data.mnist(mnist_path, images=range(0, 50_000, 50))
    assert some.x.shape == (1000, 784)
    np.testing.assert_array_equal(some.x[1], train.x[50])
    assert data.mnist(mnist_path, part="test").labels[:3].tolist() == [7, 2, 1]
