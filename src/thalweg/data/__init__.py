"""Data: the papers' generators, whitening, CSV files, scikit-learn's small sets, and MNIST.

One module per source. What comes out is a named tuple of arrays with one row per sample, ready for
`Regression(x, y)` or `Classification(x, labels)`.
"""

from thalweg.data.digit_images import mnist
from thalweg.data.synthetic import LinearData, conditioned_regression, gaussian_regression
from thalweg.data.table import Labelled, Table, diabetes, digits, from_csv, linnerud
from thalweg.data.whitening import NormalisedLabels, Whitened, normalise_labels, whiten

__all__ = [
    "Labelled",
    "LinearData",
    "NormalisedLabels",
    "Table",
    "Whitened",
    "conditioned_regression",
    "diabetes",
    "digits",
    "from_csv",
    "gaussian_regression",
    "linnerud",
    "mnist",
    "normalise_labels",
    "whiten",
]


def __dir__() -> list[str]:
    return __all__
