"""Results on disk: whole or not at all, with where they come from, and read back by one function.

`files` writes so that a crash leaves the old or the new and nothing between, `results` knows the
stores that commands leave behind, `contents` tells them apart, `blocks` keeps large results in
parts until all are there. `sums` and `sealed` tell whether what is read is what was written.
"""

from thalweg.storage.contents import RESULTS as RESULTS
from thalweg.storage.contents import explain as explain
from thalweg.storage.contents import holds as holds
from thalweg.storage.results import FORMAT as FORMAT
from thalweg.storage.results import open_results as open_results
from thalweg.storage.results import provenance as provenance
from thalweg.storage.results import write_results as write_results
