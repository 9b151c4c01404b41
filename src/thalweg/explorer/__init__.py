"""The explorer: a page on this machine where the theory moves with the slider.

`serving` starts a server on 127.0.0.1 and opens the page; `app` answers it, behind the checks of
`security`, at an address that `tokens` makes. A page posts a *setting*, which is an experiment
(`settings`); the `worker` computes it part by part (`parts`, the cheapest first) from what a
`computation` has found so far, and results travel back as `frames` in one streamed response
(`streams`). `exports` says a setting as a file, as Python, as a command and as numbers; `uploads`
keeps tables that were dropped on the page. What the two sides say to each other is written down in
docs/explorer.md.

Everything that is shown is computed by the functions that `thalweg run` uses.
"""

from typing import TYPE_CHECKING

from thalweg._later import later

__all__ = ["Explorer", "explore", "serve"]

if TYPE_CHECKING:
    from thalweg.explorer.serving import Explorer, explore, serve
else:  # it brings a web server
    __getattr__ = later(__name__, dict.fromkeys(__all__, "serving"))


def __dir__() -> list[str]:
    return __all__
