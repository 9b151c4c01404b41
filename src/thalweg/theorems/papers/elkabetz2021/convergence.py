"""Section 5 and the appendices: one output on white inputs, and the worst case."""

from thalweg.adversarial import WorstCase
from thalweg.certificates import Statement
from thalweg.curvature import (
    hessian_norm_bounds,
)
from thalweg.dynamics.exact import one_output_weights
from thalweg.initialisation import balanced, nearest_balanced
from thalweg.measurement import unbalancedness
from thalweg.theorems.balance.end_to_end import EndToEndFlow
from thalweg.theorems.balance.neighbourhood import BalancedNeighbourhood, NearbyProduct
from thalweg.theorems.discretisation.proven_distance import ProvenDistance
from thalweg.theorems.discretisation.worst_case import (
    RaysPart,
    StepsMustShrink,
    ThirdCoordinateGrows,
)
from thalweg.theorems.one_output.convergence import (
    DescentConverges,
    FlowConverges,
    RandomStartConverges,
    UnbalancedDescentConverges,
)
from thalweg.theorems.one_output.stages import (
    Alignment,
    Approach,
    LeastNorm,
    NormEnvelope,
    NormGrowth,
    Reparametrisation,
    TimeOfStages,
)
from thalweg.theorems.one_output.white_loss import WhiteLoss
from thalweg.tubes import tube

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "elkabetz2021:appF",
        "On white inputs the square loss is the squared distance to the cross moment, up to a "
        "constant.",
        WhiteLoss,
        "an identity",
    ),
    Statement(
        "elkabetz2021:proc13",
        "A random product is split into balanced layers by its singular value decomposition.",
        balanced,
    ),
    Statement(
        "elkabetz2021:lem35",
        "The product of balanced layers moves by an equation of its own.",
        EndToEndFlow,
        "an identity",
    ),
    Statement(
        "elkabetz2021:lem43",
        "In a time of its own the product of a balanced network with one output moves by an "
        "equation without fractional powers.",
        Reparametrisation,
        "an identity",
    ),
    Statement(
        "elkabetz2021:lem40",
        "In that time the norm of the product grows as long as it is below its cosine to the "
        "target.",
        Reparametrisation,
        "an identity",
    ),
    Statement(
        "elkabetz2021:lem41",
        "In that time the norm of the product changes exponentially at most.",
        NormEnvelope,
        "above: met by tiny aligned products; below: the rate is 2 N instead of N (1 + |w|)",
    ),
    Statement(
        "elkabetz2021:lem44",
        "In that time the cosine to the target is a hyperbolic tangent.",
        Reparametrisation,
        "an identity",
    ),
    Statement(
        "elkabetz2021:lem46",
        "The norm of the product first falls, until it meets the cosine, then grows, and stays "
        "below the target's.",
        NormEnvelope,
        "the turning point is exact",
    ),
    Statement(
        "elkabetz2021:lem48",
        "The product comes only so near to zero; a sharper bound follows from the closed form.",
        LeastNorm,
        "up to 5e12 at cosine -.999; the sharper one up to 7; both exact where the cosine is above "
        "the norm",
    ),
    Statement(
        "elkabetz2021:lem50",
        "After a known time the cosine to the target is at least 2/3.",
        Alignment,
        "an equality at that time",
    ),
    Statement(
        "elkabetz2021:lem51",
        "Once aligned the product grows at least like a logistic curve.",
        NormGrowth,
        "met at the start of the stage, 1.5 at its end",
    ),
    Statement(
        "elkabetz2021:lem53",
        "After another known time the norm of the product is of order one.",
        NormGrowth,
        "1.5 to 2.2",
    ),
    Statement(
        "elkabetz2021:lem54",
        "From then on the distance to the target falls exponentially.",
        Approach,
        "2.9 or more",
    ),
    Statement(
        "elkabetz2021:lem56",
        "So that any gap is met after a known time.",
        Approach,
        "1e5 or more in the gap",
    ),
    Statement(
        "elkabetz2021:lem58",
        "In the flow's own time all stages take no longer than proposition 14 says.",
        TimeOfStages,
        "21 to 4e18",
    ),
    Statement(
        "elkabetz2021:exactflow",
        "The flow of a balanced network with one output on white inputs, in closed form.",
        one_output_weights,
        "exact",
        ours=True,
    ),
    Statement(
        "elkabetz2021:prop14",
        "The flow of a small balanced network with one output on white inputs converges in known "
        "time, and the curvature around it is bounded.",
        FlowConverges,
        "490 in the time at cosine 0 and gap 1e-3; 5 to 10 in the constants",
    ),
    Statement(
        "elkabetz2021:lem60",
        "Near a balanced network the product of the layers' norms is near the norm of the product.",
        BalancedNeighbourhood,
        "2 to first order",
    ),
    Statement(
        "elkabetz2021:lem61",
        "Near a balanced network the product, the gradient of the loss and the layers' norms are "
        "near its own.",
        BalancedNeighbourhood,
        "sqrt(N) to first order",
    ),
    Statement(
        "elkabetz2021:lem62",
        "The gradient and the Hessian of a linear network are bounded by the norms of its layers.",
        hessian_norm_bounds,
        "9 / 5 for three equal layers; the sharper bound is met there",
    ),
    Statement(
        "elkabetz2021:lem64",
        "Near a balanced network with one output the curvature is bounded below.",
        BalancedNeighbourhood,
        "met by tiny aligned weights",
    ),
    Statement(
        "elkabetz2021:thm15",
        "Descent from a small balanced start of a network with one output converges, with explicit "
        "step size and number of steps.",
        DescentConverges,
        "a step of 0.1 converges where 1e-24 is promised",
    ),
    Statement(
        "elkabetz2021:cor18",
        "From a random balanced start that is small enough it almost surely does.",
        RandomStartConverges,
        "the probability for Gaussian products is exact (ours)",
    ),
    Statement(
        "elkabetz2021:def30",
        "The unbalancedness of weights: the largest nuclear norm of an imbalance.",
        unbalancedness,
    ),
    Statement(
        "elkabetz2021:lem31",
        "Weights of small unbalancedness are near balanced ones; with one output, of any widths "
        "(ours).",
        nearest_balanced,
        "2.6 to 4.6 on the example",
    ),
    Statement(
        "elkabetz2021:thm32",
        "Theorem 15 for starts that are nearly balanced.",
        UnbalancedDescentConverges,
        "1e8 below theorem 15; needs a balance of 1e-48, which rounding allows only if exact",
    ),
    Statement(
        "elkabetz2021:lem88",
        "The balanced weights near nearly balanced ones have nearly the same product and cosine.",
        NearbyProduct,
        "6e3 for two scalar layers",
    ),
    Statement(
        "elkabetz2021:eq25-27",
        "A smooth function whose flow cannot be followed with large steps.",
        WorstCase,
    ),
    Statement(
        "elkabetz2021:prop20",
        "On it no iterate comes near the flow unless steps shrink exponentially with the horizon.",
        StepsMustShrink,
        "the exponent is exact, the constant 4e3 too large",
    ),
    Statement(
        "elkabetz2021:lem66",
        "On it large steps lose the third coordinate.",
        ThirdCoordinateGrows,
        "met from 2 at the time log(2) / (12 a)",
    ),
    Statement(
        "elkabetz2021:lem86",
        "On it descent ends up on a ray that misses the flow by the order of its step.",
        RaysPart,
        "129",
    ),
    Statement(
        "elkabetz2021:cert1",
        "A descent run proves how far it is from the exact flow, by the growth of its own defect.",
        tube,
        "four times the distance for three layers at learning rate 0.01",
        ours=True,
    ),
    Statement(
        "elkabetz2021:cert2",
        "The same around a corrected curve: the distance is known from both sides.",
        ProvenDistance,
        "0.3 % at learning rate 0.001, 3 % at 0.01, 11 % at 0.03 for three layers",
        ours=True,
    ),
)
