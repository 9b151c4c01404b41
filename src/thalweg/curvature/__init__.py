"""Second order at a point: the Hessian's spectrum, and bounds on it."""

from thalweg.curvature.bounds import SharpnessBounds as SharpnessBounds
from thalweg.curvature.bounds import minimiser_sharpness_bounds as minimiser_sharpness_bounds
from thalweg.curvature.spectrum import dense_spectrum as dense_spectrum
