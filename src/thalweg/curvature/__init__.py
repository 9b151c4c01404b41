"""Second order at a point: the Hessian's spectrum with errors, exact forms, and bounds.

`spectrum` finds both ends at a point, or of any of the `operators`; `path` does along runs, and
`density` tells what is between. `forms` has the second derivative in closed form; `bounds`, `balls`
and `minimisers` bound it by norms; `regions` says where it exists.
"""

from thalweg.curvature.balls import BallBounds as BallBounds
from thalweg.curvature.balls import ball_bounds as ball_bounds
from thalweg.curvature.bounds import Bounds as Bounds
from thalweg.curvature.bounds import flow_eigenvalue_bound as flow_eigenvalue_bound
from thalweg.curvature.bounds import gradient_norm_bounds as gradient_norm_bounds
from thalweg.curvature.bounds import hessian_norm_bounds as hessian_norm_bounds
from thalweg.curvature.bounds import shallow_eigenvalue_bound as shallow_eigenvalue_bound
from thalweg.curvature.bounds import smallest_eigenvalue_bounds as smallest_eigenvalue_bounds
from thalweg.curvature.density import SpectralDensity as SpectralDensity
from thalweg.curvature.density import spectral_density as spectral_density
from thalweg.curvature.forms import linear_form as linear_form
from thalweg.curvature.forms import linear_hessian as linear_hessian
from thalweg.curvature.forms import reduced_sharpness as reduced_sharpness
from thalweg.curvature.forms import region_form as region_form
from thalweg.curvature.minimisers import LayerwiseBounds as LayerwiseBounds
from thalweg.curvature.minimisers import LeastSharpness as LeastSharpness
from thalweg.curvature.minimisers import SharpnessBounds as SharpnessBounds
from thalweg.curvature.minimisers import SmallStartBounds as SmallStartBounds
from thalweg.curvature.minimisers import balanced_sharpness as balanced_sharpness
from thalweg.curvature.minimisers import layerwise_sharpness_bounds as layerwise_sharpness_bounds
from thalweg.curvature.minimisers import least_sharpness as least_sharpness
from thalweg.curvature.minimisers import minimiser_sharpness_bounds as minimiser_sharpness_bounds
from thalweg.curvature.minimisers import posterior_sharpness_bound as posterior_sharpness_bound
from thalweg.curvature.minimisers import (
    small_start_sharpness_bounds as small_start_sharpness_bounds,
)
from thalweg.curvature.operators import AbstractSymmetricOperator as AbstractSymmetricOperator
from thalweg.curvature.operators import HessianOperator as HessianOperator
from thalweg.curvature.operators import SymmetricOperator as SymmetricOperator
from thalweg.curvature.path import SpectrumObserver as SpectrumObserver
from thalweg.curvature.path import SpectrumPath as SpectrumPath
from thalweg.curvature.path import spectrum_along as spectrum_along
from thalweg.curvature.regions import BoundaryDistance as BoundaryDistance
from thalweg.curvature.regions import activation_pattern as activation_pattern
from thalweg.curvature.regions import distance_to_boundary as distance_to_boundary
from thalweg.curvature.regions import is_regular as is_regular
from thalweg.curvature.spectrum import Eigenvalue as Eigenvalue
from thalweg.curvature.spectrum import Extremes as Extremes
from thalweg.curvature.spectrum import dense_spectrum as dense_spectrum
from thalweg.curvature.spectrum import extreme_eigenvalues as extreme_eigenvalues
from thalweg.curvature.spectrum import sharpness as sharpness
from thalweg.curvature.spectrum import smallest_eigenvalue as smallest_eigenvalue
