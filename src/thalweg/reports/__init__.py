"""A report that opens from disk: one HTML file, beside its pictures, data and settings.

Everything is written from the dataset alone (`writing`), so that a report can be made again without
a run. `page` fills the `templates` with what `summary` (numbers and tables), `sentences` and
`captions` say, in the `wording` that they share. `of_runs` makes the dataset of a run from Python,
`probes` the page of a probe.
"""

from typing import TYPE_CHECKING

from thalweg._later import later
from thalweg.experiment.folders import PAGE
from thalweg.reports.page import page
from thalweg.reports.sentences import findings
from thalweg.reports.summary import summary, table
from thalweg.reports.writing import draw, fault_of, write

__all__ = [
    "PAGE",
    "draw",
    "fault_of",
    "findings",
    "page",
    "report",
    "summary",
    "table",
    "write",
]

if TYPE_CHECKING:
    from thalweg.reports.of_runs import report
else:  # it brings all that can be measured
    __getattr__ = later(__name__, {"report": "of_runs"})


def __dir__() -> list[str]:
    return __all__
