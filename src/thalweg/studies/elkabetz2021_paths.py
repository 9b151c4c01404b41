"""Whose ways through weight space the curvature is looked at along, and by which bounds."""

from dataclasses import dataclass

from thalweg.network import AbstractNetwork, HomogeneousNetwork, LinearNetwork, strided_network
from thalweg.studies.elkabetz2021_convolutions import fast_strided_network

NEAR_ZERO = "linear, near zero"
"""The one that is a flow; all others are descents at eta_0."""

_WIDTHS = (784, 50, 50, 10)


@dataclass(frozen=True)
class Path:
    """A network whose way is looked at.

    Attributes:
        network: as the bounds know it.
        fast: the same map, as it is descended and differentiated.
        lemma: the paper's bound at any weights.
        proposition: its bound along flows, or "" where it does not speak of this start.
        piece: how many points are looked at between two times that something is kept.
        cost: of one point, against the other networks' points.
    """

    network: AbstractNetwork
    fast: AbstractNetwork
    lemma: str
    proposition: str
    piece: int
    cost: float


def paths_of_the_figures() -> dict[str, Path]:
    """The networks of figures 1 and 3 that the theory covers, and one start near zero."""
    linear, relu = LinearNetwork(_WIDTHS), HomogeneousNetwork(_WIDTHS)
    return {
        "linear": Path(linear, linear, "lemma 7", "", 3, 1.0),
        NEAR_ZERO: Path(linear, linear, "lemma 7", "proposition 8", 3, 1.0),
        "ReLU": Path(relu, relu, "lemma 11", "proposition 12", 3, 2.0),
        "adapted": Path(
            strided_network(), fast_strided_network(), "lemma 23", "proposition 24", 1, 40.0
        ),
    }
