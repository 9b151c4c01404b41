"""Data: the papers' generators, whitening, CSV files, scikit-learn's small sets, and MNIST.

One module per source. What comes out is a named tuple of arrays with one row per sample, ready for
`Regression(x, y)` or `Classification(x, labels)`.
"""

from thalweg.data.digit_images import mnist as mnist
from thalweg.data.synthetic import LinearData as LinearData
from thalweg.data.synthetic import conditioned_regression as conditioned_regression
from thalweg.data.synthetic import gaussian_regression as gaussian_regression
from thalweg.data.table import Labelled as Labelled
from thalweg.data.table import Table as Table
from thalweg.data.table import diabetes as diabetes
from thalweg.data.table import digits as digits
from thalweg.data.table import from_csv as from_csv
from thalweg.data.table import linnerud as linnerud
from thalweg.data.whitening import NormalisedLabels as NormalisedLabels
from thalweg.data.whitening import Whitened as Whitened
from thalweg.data.whitening import normalise_labels as normalise_labels
from thalweg.data.whitening import whiten as whiten
