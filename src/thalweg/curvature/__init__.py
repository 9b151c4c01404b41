"""Second order at a point: the Hessian's spectrum with errors, exact forms, and bounds.

`spectrum` finds both ends at a point, or of any of the `operators`; `path` does along runs, and
`density` tells what is between, `layers` what each layer's
block has. `forms` has the second derivative in closed form; `bounds`, `balls`
and `minimisers` bound it by norms, `proven` its smallest eigenvalue; `regions` says where it
exists.
"""

from thalweg.curvature.balls import BallBounds, ball_bounds
from thalweg.curvature.bounds import (
    Bounds,
    flow_eigenvalue_bound,
    gradient_norm_bounds,
    hessian_norm_bounds,
    shallow_eigenvalue_bound,
    smallest_eigenvalue_bounds,
)
from thalweg.curvature.density import SpectralDensity, spectral_density
from thalweg.curvature.following import Eigenvalue, Extremes
from thalweg.curvature.forms import linear_form, linear_hessian, reduced_sharpness, region_form
from thalweg.curvature.layers import LayerOperator, layer_operators, layer_spectra
from thalweg.curvature.minimisers import (
    LayerwiseBounds,
    LeastSharpness,
    SharpnessBounds,
    SmallStartBounds,
    balanced_sharpness,
    layerwise_sharpness_bounds,
    least_sharpness,
    minimiser_sharpness_bounds,
    posterior_sharpness_bound,
)
from thalweg.curvature.minimisers import (
    small_start_sharpness_bounds as small_start_sharpness_bounds,
)
from thalweg.curvature.operators import (
    AbstractSymmetricOperator,
    HessianOperator,
    SymmetricOperator,
)
from thalweg.curvature.path import SpectrumObserver, SpectrumPath, spectrum_along
from thalweg.curvature.proven import smallest_eigenvalue_bound
from thalweg.curvature.regions import (
    BoundaryDistance,
    activation_pattern,
    distance_to_boundary,
    is_regular,
)
from thalweg.curvature.spectrum import (
    dense_spectrum,
    extreme_eigenvalues,
    sharpness,
    smallest_eigenvalue,
)

__all__ = [
    "AbstractSymmetricOperator",
    "BallBounds",
    "BoundaryDistance",
    "Bounds",
    "Eigenvalue",
    "Extremes",
    "HessianOperator",
    "LayerOperator",
    "LayerwiseBounds",
    "LeastSharpness",
    "SharpnessBounds",
    "SmallStartBounds",
    "SpectralDensity",
    "SpectrumObserver",
    "SpectrumPath",
    "SymmetricOperator",
    "activation_pattern",
    "balanced_sharpness",
    "ball_bounds",
    "dense_spectrum",
    "distance_to_boundary",
    "extreme_eigenvalues",
    "flow_eigenvalue_bound",
    "gradient_norm_bounds",
    "hessian_norm_bounds",
    "is_regular",
    "layer_operators",
    "layer_spectra",
    "layerwise_sharpness_bounds",
    "least_sharpness",
    "linear_form",
    "linear_hessian",
    "minimiser_sharpness_bounds",
    "posterior_sharpness_bound",
    "reduced_sharpness",
    "region_form",
    "shallow_eigenvalue_bound",
    "sharpness",
    "small_start_sharpness_bounds",
    "smallest_eigenvalue",
    "smallest_eigenvalue_bound",
    "smallest_eigenvalue_bounds",
    "spectral_density",
    "spectrum_along",
]


def __dir__() -> list[str]:
    return __all__
