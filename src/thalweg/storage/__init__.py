"""Results on disk: whole or not at all, with where they come from, and read back by one function.

`files` writes so that a crash leaves the old or the new and nothing between, `results` knows the
stores that commands leave behind, `contents` tells them apart. `keeper` keeps finished parts of
what is not done yet, `blocks` those of a sweep until they are put together, where `layout` says.
`sums` and `sealed` tell whether what is read is what was written.
"""

from thalweg.storage.contents import RESULTS, explain, holds
from thalweg.storage.results import FORMAT, open_results, provenance, write_results

__all__ = [
    "FORMAT",
    "RESULTS",
    "explain",
    "holds",
    "open_results",
    "provenance",
    "write_results",
]


def __dir__() -> list[str]:
    return __all__
