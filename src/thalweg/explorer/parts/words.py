"""The report's sentences, by what is known so far."""

from collections.abc import Iterator

from thalweg.explorer.computation import Computation
from thalweg.explorer.measured import dataset
from thalweg.reports.sentences import findings, setting


def words(known: Computation) -> Iterator[bytes]:
    """What was trained, and what was found."""
    results = dataset(known)
    yield known.framed("words", setting=setting(results), sentences=findings(results))
