"""The parts of a page's results, in the order in which they are computed: the cheapest first.

A part is a function of a `Computation` that yields frames. What cannot be had for a setting it
refuses by an `InputError`, whose sentence the page shows in the part's place.
"""

from collections.abc import Callable, Iterator

from thalweg.explorer.computation import Computation
from thalweg.explorer.parts.descending import descent
from thalweg.explorer.parts.following import flow
from thalweg.explorer.parts.guaranteeing import certificates
from thalweg.explorer.parts.inside import layers
from thalweg.explorer.parts.mapping import phase
from thalweg.explorer.parts.proving import proof
from thalweg.explorer.parts.slicing import plane_slice
from thalweg.explorer.parts.spectrum import sharpness
from thalweg.explorer.parts.words import words

Part = Callable[[Computation], Iterator[bytes]]

PARTS: dict[str, Part] = {
    "descent": descent,
    "sharpness": sharpness,
    "flow": flow,
    "layers": layers,
    "words": words,
    "slice": plane_slice,
    "phase": phase,
    "certificates": certificates,
    "proof": proof,
}
"""By name; the place of a part is its rank."""


def parts_of(known: Computation) -> list[str]:
    """The parts in their order; a flow that is compiled first comes after what is there at once."""
    names = list(PARTS)
    if known.own is not None or known.experiment.network.kind != "linear":
        names.remove("flow")
        names.insert(names.index("slice"), "flow")
    return names


__all__ = ["PARTS", "Part", "parts_of"]


def __dir__() -> list[str]:
    return __all__
