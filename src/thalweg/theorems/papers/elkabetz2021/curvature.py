"""Sections 3 and 4: descent against flow, and how the loss curves along it."""

from thalweg.certificates import Statement
from thalweg.curvature import (
    activation_pattern,
    is_regular,
    linear_form,
    region_form,
)
from thalweg.theorems.discretisation.error_growth import ErrorGrowth, SmoothFlowIsGlobal
from thalweg.theorems.discretisation.following import FlowExists, FollowsFlow, FollowsWhereSmooth
from thalweg.theorems.landscape.along_flows import BalancedChain, FlowCurvature, FlowRegionCurvature
from thalweg.theorems.landscape.saddles import RescaledSaddle, SharpSaddle
from thalweg.theorems.landscape.smallest_eigenvalue import (
    LinearCurvature,
    RegionCurvature,
    ShallowCurvature,
)

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "elkabetz2021:thm1",
        "A locally Lipschitz field has one solution from each start, until it leaves every bounded "
        "set; the flow of a smooth loss bounded below never does.",
        FlowExists,
        "the bound on how far a flow moves (ours) is met at short times",
    ),
    Statement(
        "elkabetz2021:thm2",
        "The error of an approximate solution grows by the logarithmic norm and the defect.",
        ErrorGrowth,
        "an equality on one line; 1.05 for a matrix that is not normal, 1.03 on a double well",
    ),
    Statement(
        "elkabetz2021:thm3",
        "Descent stays within a radius of its flow if its steps are small against an integral of "
        "the curvature along the flow (with the exponent of the proof; as printed it is false).",
        FollowsFlow,
        "294 in the step size on 1 + cos x; 68 to 1370 on a network of three layers",
    ),
    Statement(
        "elkabetz2021:cor4",
        "The same with constants that hold on all of space: steps may be constant for strongly "
        "convex losses, and must shrink exponentially with the horizon for others.",
        FollowsWhereSmooth,
        "82 in the distance on the logistic loss",
    ),
    Statement(
        "elkabetz2021:lem19",
        "The flow of a function that is smooth on all of space exists for all time.",
        SmoothFlowIsGlobal,
        "an equality on inverted parabolas",
    ),
    Statement(
        "elkabetz2021:lem5",
        "The second derivative of a deep linear network's loss, in closed form.",
        linear_form,
        "exact",
    ),
    Statement(
        "elkabetz2021:prop6",
        "With three layers or more a linear network's loss curves down without bound.",
        SharpSaddle,
        "exact: the direction's curvature is -c, and so is the least eigenvalue",
    ),
    Statement(
        "elkabetz2021:claim27",
        "With two layers and a loss of bounded gradient a linear network's curvature is bounded "
        "below at all weights, and so it may be at any depth if zero is a minimiser.",
        ShallowCurvature,
        "attained in the limit of outputs that are very wrong",
    ),
    Statement(
        "elkabetz2021:lem7",
        "The curvature of a linear network is bounded below by norms of its layers and of the "
        "loss's gradient.",
        LinearCurvature,
        "attained by small scalars; 1.8 on the small example as printed, 1.34 sharpened",
    ),
    Statement(
        "elkabetz2021:prop8",
        "Along a flow from near zero that bound depends on the end-to-end matrix alone.",
        FlowCurvature,
        "2 with two layers, exactly; 9.5 at the lowest, 7 to 55 along a flow with three",
    ),
    Statement(
        "elkabetz2021:lem33",
        "No matrix of a nearly balanced chain is much larger than the root of their product.",
        BalancedChain,
        "attained by balanced chains",
    ),
    Statement(
        "elkabetz2021:prop25",
        "Almost all weights lie in open cones on which a (leaky-)ReLU network is a masked "
        "product of its layers.",
        activation_pattern,
        "exact",
    ),
    Statement(
        "elkabetz2021:prop26",
        "The same for shared weights, with pre-activations that cannot change left out.",
        is_regular,
        "exact",
    ),
    Statement(
        "elkabetz2021:lem9",
        "The second derivative of the loss on such a cone, in closed form.",
        region_form,
        "exact",
    ),
    Statement(
        "elkabetz2021:lem21",
        "The second derivative of the loss on a cone, for shared weights.",
        region_form,
        "exact",
    ),
    Statement(
        "elkabetz2021:prop10",
        "With three layers or more the loss of a (leaky-)ReLU network curves down without bound.",
        RescaledSaddle,
        "the direction finds two thirds of the least eigenvalue on the small example",
    ),
    Statement(
        "elkabetz2021:prop22",
        "With three layers or more the loss of a network with shared weights curves down without "
        "bound.",
        RescaledSaddle,
        "as prop10",
    ),
    Statement(
        "elkabetz2021:claim28",
        "With two layers and a loss of bounded gradient the curvature of a (leaky-)ReLU network is "
        "bounded below at all weights.",
        ShallowCurvature,
        "attained in the limit of outputs that are very wrong",
    ),
    Statement(
        "elkabetz2021:claim29",
        "With two layers and a loss of bounded gradient the curvature of a network with shared "
        "weights is bounded below at all weights.",
        ShallowCurvature,
        "attained in the limit of outputs that are very wrong",
    ),
    Statement(
        "elkabetz2021:lem11",
        "The curvature of a (leaky-)ReLU network is bounded below by norms of its layers and "
        "of the samples' gradients.",
        RegionCurvature,
        "attained by small scalars; 2.5 on the small example as printed",
    ),
    Statement(
        "elkabetz2021:lem23",
        "The curvature of a network with shared weights is bounded below by norms of its weights, "
        "of the samples' gradients and of its layers as maps.",
        RegionCurvature,
        "attained by a column of one shared weight; 10.5 on two convolutions as printed",
    ),
    Statement(
        "elkabetz2021:prop12",
        "Along a flow from near zero that bound depends on the smallest layer alone.",
        FlowRegionCurvature,
        "attained by two small scalars; 4.3 to 4.6 on flows of three layers",
    ),
    Statement(
        "elkabetz2021:prop24",
        "Along a flow from near zero that bound depends on the smallest weight vector alone.",
        FlowRegionCurvature,
        "attained by two small scalars; 5.1 to 5.8 on flows of three layers",
    ),
)
