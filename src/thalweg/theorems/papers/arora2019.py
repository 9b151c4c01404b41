"""The statements of arora2019, in the order of the paper.

[arora2019] S. Arora, N. Cohen, N. Golowich, W. Hu, "A convergence analysis of gradient descent for
    deep linear neural networks", ICLR 2019, arXiv:1810.02281.
"""

from thalweg.certificates import Statement
from thalweg.data import whiten
from thalweg.dynamics import descend
from thalweg.initialisation import balanced_from
from thalweg.measurement import deficiency_margin
from thalweg.problem import TargetMatrix
from thalweg.theorems.balance.end_to_end import EndToEndFlow
from thalweg.theorems.balance.products import (
    LayerNorms,
    MarginBoundsRank,
    PowersOfProducts,
    RotatedDiagonals,
    SingularValuesMoveLittle,
)
from thalweg.theorems.convergence.failure import (
    Divergence,
    DoublyExponentialGrowth,
    EqualLayers,
    Stalling,
)
from thalweg.theorems.convergence.linear_rate import Guarantee, Invariants, LinearRate, StepDescent
from thalweg.theorems.convergence.margins import IdentityStart, SmallStart
from thalweg.theorems.convergence.single_step import SingleStep
from thalweg.theorems.convergence.step_sizes import FewerIterations, LargerSteps, StabilityLimit
from thalweg.theorems.probability.gaussian_products import (
    ImbalanceOfTwoLayers,
    NormOfProduct,
    RotationInvariance,
    SmallBall,
)
from thalweg.theorems.probability.gaussian_starts import (
    BalancedStartConverges,
    BalanceOfGaussianStart,
    MarginOfGaussianStart,
)
from thalweg.theorems.probability.joint import joint_probability
from thalweg.theorems.probability.spheres import (
    CapArea,
    GaussianNormTails,
    MarginOnSphere,
    RadialMargin,
)
from thalweg.theorems.settings.matrix_approximation import largest_imbalance

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "arora2019:eq1",
        "On whitened inputs least squares is the approximation of the cross moment.",
        whiten,
    ),
    Statement(
        "arora2019:eq3-loss",
        "The loss is half the squared Frobenius distance of the product to its target.",
        TargetMatrix,
    ),
    Statement(
        "arora2019:eq4-gd",
        "Descent moves all layers at once along their gradients.",
        descend,
    ),
    Statement(
        "arora2019:def1",
        "Layers are delta-balanced if consecutive squares differ by delta at most.",
        largest_imbalance,
    ),
    Statement(
        "arora2019:def2",
        "The deficiency margin is the target's least singular value less the distance to it.",
        deficiency_margin,
    ),
    Statement(
        "arora2019:claim1",
        "What is no further from the target than a matrix with margin c has singular values >= c.",
        MarginBoundsRank,
        "tight",
    ),
    Statement(
        "arora2019:thm1",
        "Nearly balanced starts with a deficiency margin converge at a linear rate.",
        LinearRate,
        "on six instances 2 to 6.5 times too many iterations at the certified learning rate, which "
        "on twelve others is 4e5 to 1.5e7 times below what descent can take",
    ),
    Statement(
        "arora2019:lemma1",
        "Each step of a certified run lowers the loss by a share of its squared gradient.",
        StepDescent,
        "a factor of 2, or 2N with as many outputs as features",
    ),
    Statement(
        "arora2019:lemma2",
        "A certified run stays nearly balanced and its layers stay bounded.",
        Invariants,
        "imbalance 2.0, drift 8.8 or more, layer norms 1.4 or more",
    ),
    Statement(
        "arora2019:eq11",
        "The product of balanced layers follows a preconditioned flow of its own.",
        EndToEndFlow,
        "exact; the paper's lower bound of the preconditioner is off by N for square products",
    ),
    Statement(
        "arora2019:lemma3",
        "Singular values move no more than the matrix does.",
        SingularValuesMoveLittle,
        "tight",
    ),
    Statement(
        "arora2019:lemma4",
        "A diagonal near a rotated one is near it unrotated.",
        RotatedDiagonals,
        "first bound tight, second 2 for equal diagonals",
    ),
    Statement(
        "arora2019:lemma5",
        "The square of a nearly balanced product is nearly a power of one layer's square.",
        PowersOfProducts,
        "printed bound 3 n / (n - 1) times ours, which is tight; the printed (18) is false, "
        "corrected here",
    ),
    Statement(
        "arora2019:lemma6",
        "Nearly balanced layers are no larger than the root of their product.",
        LayerNorms,
        "printed bound 2^(1/2N) on balanced layers, ours tight",
    ),
    Statement(
        "arora2019:lemma7",
        "One step from a nearly balanced point with bounded layers lowers the loss.",
        SingleStep,
        "descent 2 or 2N; (27) 15, (28) 1.2 at best",
    ),
    Statement(
        "arora2019:proc1",
        "Balanced layers with a given product, from its singular value decomposition.",
        balanced_from,
        "exact",
    ),
    Statement(
        "arora2019:thm2",
        "With one output and a small balanced Gaussian start, descent converges with a probability "
        "as close to one half as one likes.",
        BalancedStartConverges,
        "promised 0.12 to 0.43, exact probability of the event 0.46 to 0.49, of success 1 in all "
        "starts tried; the promised time is 2600 to 21000 times that of the flow",
    ),
    Statement(
        "arora2019:lemma8",
        "A rotation-invariant vector of small norm has a deficiency margin with a probability of "
        "nearly one half.",
        RadialMargin,
        "in 100 dimensions 15 times too small at a = 20, 1.7 times at 100, 1 % at 10^6",
    ),
    Statement(
        "arora2019:lemma9",
        "The squared norm of a Gaussian vector is rarely far from its dimension.",
        GaussianNormTails,
        "where theorem 2 uses it 7 and 9 times too large for 20 features, 25 and 280 for 100",
    ),
    Statement(
        "arora2019:lemma10",
        "The imbalance of two Gaussian layers is rarely far above its mean square.",
        ImbalanceOfTwoLayers,
        "the bound on the mean square is 3.1 times the exact one for widths 4, 5, 3",
    ),
    Statement(
        "arora2019:claim2",
        "Gaussian layers are nearly balanced with high probability if their scale is small.",
        BalanceOfGaussianStart,
        "where 1/2 is promised the exact moments promise 0.96; six times the median imbalance",
    ),
    Statement(
        "arora2019:lemma11",
        "A multilinear polynomial of Gaussian numbers is rarely far below its deviation.",
        SmallBall,
        "the constant exists only; entries of products need 0.80 (N = 1), 0.42, 0.30, 0.24, 0.20",
    ),
    Statement(
        "arora2019:lemma12",
        "The product of Gaussian layers with one output has a norm of a known order.",
        NormOfProduct,
        "what is promised 0.9 has a probability above 0.99; the exact distribution is known",
    ),
    Statement(
        "arora2019:lemma13",
        "The product of Gaussian layers with one output points in every direction alike, whatever "
        "its norm and the imbalances are.",
        RotationInvariance,
        "an equality of laws",
    ),
    Statement(
        "arora2019:lemma14",
        "A spherical cap has at least the area that a normal tail of twice the size gives it.",
        CapArea,
        "equal at the half sphere, with twice the slope; true for every dimension from 2 on tried",
    ),
    Statement(
        "arora2019:lemma15",
        "A vector drawn from a small sphere has a deficiency margin with a probability of nearly "
        "one half.",
        MarginOnSphere,
        "in 20 dimensions 12 times too small at a = 10, 1.3 times at 100, 2 % at 10^4",
    ),
    Statement(
        "arora2019:lemma16",
        "Lemma 8 again: a rotation-invariant vector of small norm has a margin with a probability "
        "of nearly one half.",
        RadialMargin,
        "as lemma 8",
    ),
    Statement(
        "arora2019:claim3",
        "With one output, small Gaussian layers have a deficiency margin with probability 0.49.",
        MarginOfGaussianStart,
        "with the constant 2000 the margin is about 10^18 times smaller than it could be",
    ),
    Statement(
        "arora2019:claim4",
        "Unbalanced starts with a large margin may diverge, at any learning rate.",
        Divergence,
        "the loss grows doubly exponentially, the bound is constant",
    ),
    Statement(
        "arora2019:lemma17",
        "The entries of the diverging start alternate in sign and grow doubly exponentially.",
        DoublyExponentialGrowth,
        "the printed factor is false for c > .89, corrected here",
    ),
    Statement(
        "arora2019:claim5",
        "Identity layers never reach a symmetric target with a negative eigenvalue.",
        Stalling,
        "tight",
    ),
    Statement(
        "arora2019:lemma18",
        "Identity layers on a symmetric target stay equal and symmetric.",
        EqualLayers,
        "exact",
    ),
    Statement(
        "arora2019:cor-cert",
        "The learning rate, imbalance and iterations that theorem 1 certifies, as numbers.",
        Guarantee,
        ours=True,
    ),
    Statement(
        "arora2019:cor-Tint",
        "Certified runs need fewer steps, because their rate improves along the run.",
        FewerIterations,
        "4 on theorem 1's first instance, which has 4.3",
        ours=True,
    ),
    Statement(
        "arora2019:cor-cert2",
        "With measured constants the same induction certifies far larger learning rates.",
        LargerSteps,
        "5 to 420 below what descent can take",
        ours=True,
    ),
    Statement(
        "arora2019:cor-lr-gap",
        "Descent from a nearly balanced start stops converging where a balanced minimiser becomes "
        "unstable.",
        StabilityLimit,
        "a prediction, within 2 per cent",
        ours=True,
    ),
    Statement(
        "arora2019:cor-residual",
        "Identity layers have a margin for targets nearer than one half.",
        IdentityStart,
        "tight",
        ours=True,
    ),
    Statement(
        "arora2019:cor-smallinit",
        "Small starts have a margin only with one output or one feature.",
        SmallStart,
        "tight",
        ours=True,
    ),
    Statement(
        "arora2019:open-joint",
        "How likely a Gaussian start is balanced enough for the margin that it has, which is what "
        "theorem 1 asks for and the paper leaves open.",
        joint_probability,
        "at best 2.8e-5 for theorem 1 and two scalar layers; less for every other width tried",
        ours=True,
    ),
)
