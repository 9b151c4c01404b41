"""Losses of a linear network's product M as power series, with what bounds their remainders.

A loss sees M only through its outputs Z = M K, K the *images* of the inputs. It is met order by
order: given the next coefficient of M it returns that of its gradient Gamma = phi'(Z) K^T with
respect to M. What it returns is a polynomial in time; how far the true phi' can be from it, after
truncation and rounding, is its *remainder*. The square loss scale |M F^T - G|^2 has

    K = F^T,    phi' = 2 scale (Z - G),

which is affine: its coefficients are those of M, multiplied. Losses that are made of probabilities
are in `probabilities`.

In extended precision the square loss of samples X, Y is taken from its moments instead, made of the
samples without rotating them:

    Gamma = 2 scale (M Sigma - Lambda),    Sigma = X^T X / n,    Lambda = Y^T X / n.

What rounding has done to F and G, which is most of a radius in double precision, is then left out.
"""

from abc import ABC, abstractmethod
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from typing_extensions import override

from thalweg.validated.norms import frobenius, spectral
from thalweg.validated.rounding import EXTENDED, SLACK, UNIT, roundoff

Matrix = Float[np.ndarray, "_ _"]
Wide = Shaped[np.ndarray, "_ _"]  # of extended precision, too
Changes = Float[np.ndarray, "_ _ _"]
Numbers = Float[np.ndarray, " _"]


class Remainder(NamedTuple):
    """What the polynomial leaves of the gradient, on a step.

    Attributes:
        tail: what Gamma's coefficients beyond the known ones are at most; zero where known.
        outputs: how far phi' can be off besides, in Frobenius norm; infinite if that is unknown.
        gradient: how far Gamma can be off besides.
        unknown: how far phi' can be off where the Hessian is computed, in double precision.
    """

    tail: Numbers
    outputs: float
    gradient: float
    unknown: float


class Moments(NamedTuple):
    """Sigma and Lambda of samples in extended precision, and how far they can be off.

    Attributes:
        inputs: Sigma.
        cross: Lambda, outputs x features.
        inputs_error: in Frobenius norm.
        cross_error: of the other.
    """

    inputs: Wide
    cross: Wide
    inputs_error: float
    cross_error: float

    @classmethod
    def of(cls, x: Matrix, y: Matrix, count: int) -> "Moments":
        """Those of samples and targets, one row each, divided by a number."""
        inputs, targets = x.astype(EXTENDED), y.astype(EXTENDED)
        doubt = (x.shape[0] + 4) * roundoff(EXTENDED) / count * float(np.linalg.norm(x)) * SLACK
        sizes = (float(np.linalg.norm(x)), float(np.linalg.norm(y)))
        both = (inputs.T @ inputs / count, targets.T @ inputs / count)
        return cls(*both, doubt * sizes[0], doubt * sizes[1])


class Reach(NamedTuple):
    """How far the outputs Z get from where they are at order 0: as a whole, and any one column."""

    whole: float
    column: float


class AbstractLossSeries(ABC):
    """A loss along a power series of matrices.

    Attributes:
        images: K, features x columns.
        stretch: an upper bound on its spectral norm.
        images_error: how far K may be off, in Frobenius norm.
        bending_rate: phi'' is off by at most this times what phi' is off by.
        extended: whether coefficients may be met in extended precision.
    """

    images: Float[np.ndarray, "_ _"]
    stretch: float
    images_error: float
    bending_rate: float
    extended: ClassVar[bool] = False

    @abstractmethod
    def fresh(self) -> "AbstractLossSeries":
        """The same loss without any coefficients."""

    @abstractmethod
    def extend(self, product: Wide) -> Wide:
        """The next coefficient of Gamma, from that of M."""

    @abstractmethod
    def remainder(self, product: Numbers, known: int, share: float, error: float) -> Remainder:
        """What the coefficients so far leave out.

        Args:
            product: what those of M are at most on the step, to M's full degree.
            known: q, the order up to which they have been met.
            share: the length of the step in units of the coefficients' time.
            error: what rounding has done to those of M, added up.
        """

    @abstractmethod
    def value(self, product: Matrix) -> float:
        """The loss itself."""

    @abstractmethod
    def rooted(self, product: Matrix, changes: Changes) -> Changes:
        """Changes D of the outputs as B D, where B^T B is the second derivative phi'' at M."""

    @abstractmethod
    def rooted_back(self, product: Matrix, changes: Changes) -> Changes:
        """The changes B^T D for the same B.

        Both are off by at most 3 (outputs + 8) u |phi''|^(1/2) |D|, phi'' being as it is computed.
        """

    @abstractmethod
    def curvature_jet(self, product: Numbers, share: float) -> Float[np.ndarray, "3"]:
        """What |phi''| and its first two derivatives in time / length are at most on the step.

        Args:
            product: what the coefficients of M are at most on the step, to M's full degree.
            share: the length of the step in units of the coefficients' time.
        """

    @abstractmethod
    def second(self, reach: Reach) -> float:
        """What |phi''| is at most within this reach of the outputs at order 0."""

    @abstractmethod
    def third(self, reach: Reach) -> float:
        """A number t: the third derivative along D is at most t |D|^2 times D's largest column."""

    @abstractmethod
    def steepest(self, reach: Reach) -> float:
        """What |phi'| is at most there, in Frobenius norm."""


class SquareSeries(AbstractLossSeries):
    """scale |M F^T - G|^2 + constant.

    F and G may have been made of samples, by rotations that are rounded: then they are those of
    samples X, Y of which every column differs by at most `blur` times its norm, and what that does
    to the gradient belongs to the remainder. With R = M X^T - Y^T, |R| is off by at most
    blur (|M| |X| + |Y|), and the gradient R X by that times |X| and blur |R| |X|.

    Attributes:
        unreached: how far G is at most from what M F^T can be; infinite where that is unknown.
    """

    extended = True

    def __init__(
        self,
        factor: Any,
        target: Any,
        scale: float,
        constant: float = 0.0,
        *,
        blur: float = 0.0,
        unreached: float = 0.0,
        samples: tuple[Any, Any] | None = None,
    ):
        """Take F (rows x features), G (outputs x rows), the scale and the constant.

        With samples X and Y, one row each, the loss is theirs; without, that of F and G themselves
        where there is no `blur`.
        """
        self.factor, self.target = np.asarray(factor, float), np.asarray(target, float)
        self.scale, self.constant = float(scale), float(constant)
        self.blur, self.unreached = float(blur), float(unreached)
        self.images = self.factor.T
        self.images_error = self.blur * frobenius(self.factor)
        self.stretch = float(spectral(self.factor)) + self.images_error
        self.bending_rate = 0.0
        self._samples = samples
        self._residual: np.ndarray | None = None
        self._doubt = 0.0
        self._kind: Any = float

    @cached_property
    def moments(self) -> Moments:
        """Those of the samples, or of the factors where these are all there is."""
        if self._samples is None:
            made = Moments.of(self.factor, self.target.T, 1)
            whole = float(np.linalg.norm(self.factor))
            off = self.blur * whole * 2
            size = float(np.linalg.norm(self.target)) + (self.constant / self.scale) ** 0.5
            return made._replace(
                inputs_error=made.inputs_error + off * whole,
                cross_error=made.cross_error + off * size,
            )
        x, y = (np.asarray(each, float) for each in self._samples)
        return Moments.of(x, y, x.shape[0])

    @override
    def fresh(self) -> "SquareSeries":
        made = copy(self)  # which shares the factors
        made._residual = None
        return made

    @override
    def extend(self, product: Wide) -> Wide:
        first, self._kind = self._residual is None, product.dtype
        if first or not self._in_moments:
            narrow = product.astype(float)
            outputs = narrow @ self.images
            if first:
                self._residual = outputs = outputs - self.target
                self._doubt = self._residual_error(frobenius(narrow))
            if not self._in_moments:
                return 2 * self.scale * (outputs @ self.factor)
        rates = product @ self.moments.inputs
        return 2 * self.scale * (rates - self.moments.cross if first else rates)

    @property
    def _in_moments(self) -> bool:
        return np.dtype(self._kind) == EXTENDED and np.dtype(EXTENDED) != np.dtype(float)

    @override
    def remainder(self, product: Numbers, known: int, share: float, error: float) -> Remainder:
        tail = 2 * self.scale * self.stretch**2 * product
        tail[: known + 1] = 0.0
        # To M's full degree: what F and the moments are off by concerns all of it.
        size = float(np.sum(product)) * SLACK
        outputs = self._residual_error(size) + self.stretch * error
        unknown = 2 * self.scale * outputs
        if not self._in_moments:
            inputs = self._pulled_back_error(size)
            return Remainder(tail, unknown, 2 * self.scale * inputs, unknown)
        carried = 2 * self.scale * self.stretch * error
        return Remainder(tail, carried, 2 * self.scale * self._moment_error(size), unknown)

    def _made_of(self, size: float) -> tuple[float, float]:
        """What M F^T - G is made of, for M of this size, and what that of the samples is."""
        made_of = size * frobenius(self.factor) + frobenius(self.target)
        return made_of, made_of + (self.constant / self.scale) ** 0.5

    def _residual_error(self, size: float) -> float:
        """What M F^T - G is off by, for M of this size, by rounding and as F and G are."""
        made_of, all_of_it = self._made_of(size)
        return ((self.factor.shape[1] + 3) * UNIT * made_of + self.blur * all_of_it) * SLACK

    def _pulled_back_error(self, size: float) -> float:
        """What a residual R times F is off by, for M of this size, where R is exact."""
        made_of, all_of_it = self._made_of(size)
        off = (self.factor.shape[0] + 3) * UNIT * made_of + self.blur * all_of_it
        return off * frobenius(self.factor) * SLACK

    def _moment_error(self, size: float) -> float:
        """What M Sigma - Lambda is off by, M of this size, by rounding and as the moments are."""
        made = self.moments
        whole = size * float(np.linalg.norm(made.inputs)) + float(np.linalg.norm(made.cross))
        rounded = (made.inputs.shape[0] + 4) * roundoff(EXTENDED) * whole
        return (rounded + size * made.inputs_error + made.cross_error) * SLACK

    @override
    def value(self, product: Matrix) -> float:
        return (
            self.scale * float(np.sum((product @ self.images - self.target) ** 2)) + self.constant
        )

    @override
    def rooted(self, product: Matrix, changes: Changes) -> Changes:
        return (2 * self.scale) ** 0.5 * changes

    @override
    def rooted_back(self, product: Matrix, changes: Changes) -> Changes:
        return (2 * self.scale) ** 0.5 * changes

    @override
    def curvature_jet(self, product: Numbers, share: float) -> Float[np.ndarray, "3"]:
        return np.array([2 * self.scale, 0.0, 0.0])

    @override
    def second(self, reach: Reach) -> float:
        return 2 * self.scale

    @override
    def third(self, reach: Reach) -> float:
        return 0.0

    @override
    def steepest(self, reach: Reach) -> float:
        assert self._residual is not None
        return 2 * self.scale * (frobenius(self._residual) + self._doubt + reach.whole) * SLACK
