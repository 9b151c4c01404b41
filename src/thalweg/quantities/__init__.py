"""One registry of all that is measured, stored and drawn.

A quantity has a name, a symbol, a formula, a way to compute it along a trajectory where it is a
function of the weights, and the words that label and explain it. Runs, sweeps, stores, figures, the
report and the documentation read it here; a quantity that is registered is measured, stored, drawn
and explained with all others:

    tw.quantities.register(tw.quantities.Quantity(...))

`of_weights` has those that are functions of the weights, `of_runs` all others, `registry` joins
them.
"""

from thalweg._quantity import QUANTITIES, Quantity
from thalweg.quantities.registry import along, described, forget, register

__all__ = ["QUANTITIES", "Quantity", "along", "described", "forget", "register"]


def __dir__() -> list[str]:
    return __all__
