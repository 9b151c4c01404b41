"""The statements of marion2024, in the order of the paper.

[marion2024] P. Marion, L. Chizat, "Deep linear networks for regression are implicitly regularized
    towards flat minima", arXiv:2405.13456.
"""

from thalweg import curvature, initialisation
from thalweg.certificates import Statement
from thalweg.curvature.products import products_without_two
from thalweg.dynamics import flow
from thalweg.network import LinearNetwork
from thalweg.objective import Objective
from thalweg.problem import Regression
from thalweg.theorems.convergence.decay import ExponentialDecay, QuadraticRisk
from thalweg.theorems.probability.inequalities import (
    ChiSquaredTail,
    GaussianForms,
    PowersNearOne,
    UnionBound,
)
from thalweg.theorems.residual_starts.flow import (
    GradientsAreBounded,
    ResidualStartConverges,
    residual_view,
)
from thalweg.theorems.residual_starts.perturbed_products import DisturbedProducts
from thalweg.theorems.residual_starts.products import ResidualProducts, ResidualProductsByTerms
from thalweg.theorems.residual_starts.random_starts import (
    RandomResidualLimitIsFlat,
    RandomResidualStartConverges,
    RandomResidualStartConvergesForManyOutputs,
)
from thalweg.theorems.settings.deep_regression import unique_solution
from thalweg.theorems.settings.small_starts import (
    start_size,
    starts_below_zero_network,
    starts_small,
)
from thalweg.theorems.sharpness.minimisers import (
    FlattestMinimiser,
    SharpnessIsUnbounded,
    SharpnessOfMinimisers,
    largest_settling_rate,
)
from thalweg.theorems.small_starts.flow import (
    BalanceIsConserved,
    EventuallyLojasiewicz,
    LayersAlign,
)
from thalweg.theorems.small_starts.limit import (
    LayersGrowAlike,
    SmallStartConverges,
    SmallStartLimitIsFlat,
    SmallStartLimitSharpness,
)

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "marion2024:def-model",
        "Networks that multiply their input by matrices, and perhaps by a fixed readout.",
        LinearNetwork,
    ),
    Statement(
        "marion2024:def-risk",
        "The mean squared error of one output, without a factor 1/2.",
        Regression,
    ),
    Statement(
        "marion2024:eq1",
        "No minimiser is linearly stable above learning rate 2 / sharpness.",
        largest_settling_rate,
        "descent fails within 1% above the rate at which the flattest minimiser becomes unstable",
    ),
    Statement(
        "marion2024:eq2",
        "Residual starts: the identity plus Gaussian noise that is scaled by depth and width.",
        initialisation.residual,
    ),
    Statement(
        "marion2024:eq3",
        "The same, as a map from the weights to the function that is learnt.",
        LinearNetwork.end_to_end,
    ),
    Statement(
        "marion2024:eq4",
        "Gradient flow.",
        flow,
    ),
    Statement(
        "marion2024:eq5",
        "The gradient of each layer is a product of the others with the slope of the loss.",
        Objective.gradient,
    ),
    Statement(
        "marion2024:eq6",
        "The slope of the loss with respect to the product of the layers.",
        Regression.gradient,
    ),
    Statement(
        "marion2024:eq7",
        "How fast gradients change at most, which is the larger end of the spectrum by modulus.",
        curvature.extreme_eigenvalues,
        "equals the squared sharpness only where the Hessian has no eigenvalue below minus it",
    ),
    Statement(
        "marion2024:eq8",
        "The layers of a residual network, written as the start and a move of the order 1 / depth.",
        residual_view,
    ),
    Statement(
        "marion2024:def-sharpness",
        "The largest eigenvalue of the Hessian.",
        curvature.sharpness,
    ),
    Statement(
        "marion2024:d-reduced-sharpness",
        "At a minimiser the sharpness is an eigenvalue problem of the size of the input.",
        curvature.reduced_sharpness,
        "exact",
        ours=True,
    ),
    Statement(
        "marion2024:def-smin",
        "A number that the sharpness of no minimiser is below, and two stronger ones.",
        curvature.minimiser_sharpness_bounds,
        "at depth 10 the least sharpness is 3.7 times the paper's, 1.05 and 1.002 times ours",
    ),
    Statement(
        "marion2024:asm-A1",
        "The samples span all directions, so that the best linear predictor is unique.",
        unique_solution,
    ),
    Statement(
        "marion2024:asm-A2",
        "The start is no worse than the zero network and not stationary.",
        starts_below_zero_network,
    ),
    Statement(
        "marion2024:asm-A3",
        "The solution has norm 1 at least and the start is small compared with 1 / depth.",
        starts_small,
    ),
    Statement(
        "marion2024:def-eps",
        "The size of a start: its norms and imbalances, squared.",
        start_size,
    ),
    Statement(
        "marion2024:thm1",
        "The sharpness of every minimiser grows in proportion to the depth.",
        SharpnessOfMinimisers,
        "attained on white data by balanced chains of rank one",
    ),
    Statement(
        "marion2024:thm2",
        "Two lower bounds on the sharpness of a minimiser, by depth and by the norms of layers.",
        SharpnessOfMinimisers,
        "attained on white data; false as printed if the readout is shorter than 1",
    ),
    Statement(
        "marion2024:ex-rescale",
        "Minimisers can be as sharp as one likes: multiply a layer and divide the next.",
        SharpnessIsUnbounded,
        "the paper's bound grows like the factor, the sharpness and our bound like its square",
    ),
    Statement(
        "marion2024:ex-prod",
        "The product of L numbers has the sharpness L - 1 where all of them are one.",
        products_without_two,
        "exact",
    ),
    Statement(
        "marion2024:d-min-sharpness",
        "The sharpness of the flattest minimiser, exactly.",
        FlattestMinimiser,
        "attained",
        ours=True,
    ),
    Statement(
        "marion2024:lem1",
        "The imbalance of consecutive layers is constant along the flow.",
        BalanceIsConserved,
        "an identity; what descent makes of it is thalweg:balance-law",
    ),
    Statement(
        "marion2024:lem2",
        "Layers that start small stay near an aligned chain of rank one.",
        LayersAlign,
        "8 to 11 times at depth 3; the sharper second bound is attained at time 0",
    ),
    Statement(
        "marion2024:thm3",
        "From any positive time on the excess loss decays exponentially.",
        EventuallyLojasiewicz,
        "attained at depth 1 on white data; the rate is 5e9 times too small at depth 3",
    ),
    Statement(
        "marion2024:cor1",
        "At late times the norms of all layers are about the L-th root of the solution's.",
        LayersGrowAlike,
        "1.26 at depth 3, 1.04 at depth 10",
    ),
    Statement(
        "marion2024:cor2",
        "The flow from a small start converges to a minimiser.",
        SmallStartConverges,
        "attained at depth 1 on white data",
    ),
    Statement(
        "marion2024:cor3",
        "The minimiser that the flow finds from a small start is flat up to the condition number.",
        SmallStartLimitIsFlat,
        "attained at depth 1; 6.6 at depth 3 and 7.7 at depth 10",
    ),
    Statement(
        "marion2024:d-S0",
        "The sharpness that the flow from a small start ends with, up to a few per cent.",
        SmallStartLimitSharpness,
        "true to 1.4e-6 at depth 3 and 2e-8 at depth 10, where 7% and 8% are allowed",
        ours=True,
    ),
    Statement(
        "marion2024:lem3",
        "The products of random layers near the identity have bounded singular values.",
        ResidualProducts,
        "the largest singular value is bounded by 11 times the typical one at s = 0.1",
    ),
    Statement(
        "marion2024:lem3-failure",
        "The probability that they have not, in full.",
        ResidualProductsByTerms,
        "at least e^2 below the simplified bound",
    ),
    Statement(
        "marion2024:eq-gradbounds",
        "The gradient of each layer is bounded from both sides by the excess loss.",
        GradientsAreBounded,
        "attained at the identity on white data",
    ),
    Statement(
        "marion2024:thm4",
        "The flow from a random residual start with a small loss converges, very probably.",
        RandomResidualStartConverges,
        "the deterministic form allows for a loss 7e6 times as large at s = 0.01",
    ),
    Statement(
        "marion2024:thm4-det",
        "The flow from well-conditioned square layers with a small loss converges nearby.",
        ResidualStartConverges,
        "from the identity the move is 420 times less than allowed, the rate 16 times the promised",
        ours=True,
    ),
    Statement(
        "marion2024:cor4",
        "The minimiser that the flow finds from a random residual start is flat up to a constant.",
        RandomResidualLimitIsFlat,
        "7e3 times at s = 0.01; the a-posteriori form is attained at the identity",
    ),
    Statement(
        "marion2024:thm5",
        "The flow converges likewise with as many outputs as inputs.",
        RandomResidualStartConvergesForManyOutputs,
        "the move is 2e4 times less than allowed at s = 0.01",
    ),
    Statement(
        "marion2024:lem4",
        "Powers of numbers near one are nearly straight.",
        PowersNearOne,
        "2 in the change for small x; 1.44 and 1.10 at the ends of the conditions",
    ),
    Statement(
        "marion2024:lem5",
        "A union bound over many small probabilities is small, if they fall fast enough.",
        UnionBound,
        "e as printed, attained as sharpened, and for every L >= 1",
    ),
    Statement(
        "marion2024:lem6",
        "A Gaussian matrix makes a chi-squared variable and a Gaussian one of any vector.",
        GaussianForms,
        "exact laws, by Kolmogorov-Smirnov tests",
    ),
    Statement(
        "marion2024:lem7",
        "Where the squared gradient dominates the loss, the loss falls exponentially along the "
        "flow; the printed form lacks the square and is false.",
        ExponentialDecay,
        "attained along the flattest direction of least squares",
    ),
    Statement(
        "marion2024:lem8",
        "The excess of the squared error is a quadratic form of the predictor, and bounds its "
        "gradient on both sides.",
        QuadraticRisk,
        "attained along eigenvectors of the input moment",
    ),
    Statement(
        "marion2024:lem9",
        "Products of many matrices stay well conditioned if each changes by a part of their "
        "number.",
        DisturbedProducts,
        "1.56 for the identity; the bound on products in between is attained",
    ),
    Statement(
        "marion2024:chi2-tail",
        "A chi-squared variable is seldom far above its mean.",
        ChiSquaredTail,
        "2 at the mean, more elsewhere",
    ),
)
