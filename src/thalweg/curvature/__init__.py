"""Second order at a point: the Hessian's spectrum, and bounds on it."""

from thalweg.curvature.bounds import SharpnessBounds as SharpnessBounds
from thalweg.curvature.bounds import minimiser_sharpness_bounds as minimiser_sharpness_bounds
from thalweg.curvature.path import SpectrumPath as SpectrumPath
from thalweg.curvature.path import spectrum_along as spectrum_along
from thalweg.curvature.spectrum import Eigenvalue as Eigenvalue
from thalweg.curvature.spectrum import Extremes as Extremes
from thalweg.curvature.spectrum import dense_spectrum as dense_spectrum
from thalweg.curvature.spectrum import extreme_eigenvalues as extreme_eigenvalues
from thalweg.curvature.spectrum import sharpness as sharpness
from thalweg.curvature.spectrum import smallest_eigenvalue as smallest_eigenvalue
