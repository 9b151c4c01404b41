"""Statements of this package that stand in no paper: exact laws of descent with finite steps."""

from thalweg.certificates import Statement
from thalweg.theorems.finite_steps.aligned_modes import TwoCycles
from thalweg.theorems.finite_steps.balance_law import BalanceLaw
from thalweg.theorems.finite_steps.catapult import Catapult

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "thalweg:balance-law",
        "A step of descent changes the imbalances of a linear network by the squared learning "
        "rate, exactly.",
        BalanceLaw,
        "an identity, for any loss, with weight decay, too",
        ours=True,
    ),
    Statement(
        "thalweg:catapult",
        "Two layers that must forget converge below 4 / s, by a catapult above 2 / s, and diverge "
        "above 4 / s.",
        Catapult,
        "attained: 4 / s is exact to the last digit, and chaotic itself",
        ours=True,
    ),
    Statement(
        "thalweg:two-cycles",
        "Above the edge a balanced, aligned mode has exactly one two-cycle, which is stable at "
        "first.",
        TwoCycles,
        "attained; runs of networks end in it, to rounding",
        ours=True,
    ),
)
