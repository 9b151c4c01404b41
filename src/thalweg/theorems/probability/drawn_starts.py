"""The distribution of a random start, as statements about the probability of good ones need it."""

from typing import NamedTuple

from thalweg.certificates import Case, Claim, Magnitude, Narrowed, requirement
from thalweg.network import LinearNetwork
from thalweg.theorems.probability.gaussian_products import GaussianChain
from thalweg.theorems.settings.matrix_approximation import WhiteTraining, white_training


class DrawnTraining(NamedTuple):
    """White least squares with one output, and the distribution of its random start.

    Of a balanced start only the ends of the chain mean something.
    """

    training: WhiteTraining
    chain: GaussianChain

    @property
    def ratio(self) -> float:
        """The a of the case, or 1e200 where it is more: every smaller a is right as well."""
        norm, chain = self.training.start.norm, self.chain
        return min(norm / chain.scale / chain.widths[0], 1e100) ** 2

    @property
    def signal(self) -> Magnitude:
        """s^2 d_0, the expected squared norm of a balanced start's product."""
        return Magnitude.of(self.chain.scale) ** 2 * self.chain.widths[0]


def drawn_training(case: Case, kind: str) -> Narrowed[DrawnTraining]:
    """A case in these terms, whose start is drawn in this way."""
    return (
        white_training(case)
        .further(_with_one_output)
        .further(lambda training: _with_chain(training, kind))
    )


def _with_one_output(training: WhiteTraining) -> Narrowed[WhiteTraining]:
    one = requirement("the network has one output", len(training.start.target) == 1)
    return Narrowed.where((one, Claim("0 < F", 0.0, training.start.norm)), training)


def _with_chain(training: WhiteTraining, kind: str) -> Narrowed[DrawnTraining]:
    return drawn_chain(training.case, training.network, kind).further(
        lambda chain: Narrowed((), DrawnTraining(training, chain))
    )


def drawn_chain(case: Case, network: LinearNetwork, kind: str) -> Narrowed[GaussianChain]:
    """The widths, and the scale of a start that is drawn in this way."""
    words = {
        "balanced": "the start is balanced, its product drawn from N(0, s^2)",
        "gaussian": "the start is drawn from N(0, s^2) in every layer",
    }
    start = case.random_start
    known = requirement(words[kind], start is not None and start.kind == kind)
    if start is None:
        return Narrowed((known,), None)
    claims = (known, Claim("0 < s", 0.0, start.scale))
    return Narrowed.where(claims, GaussianChain(network.widths, float(start.scale)))
