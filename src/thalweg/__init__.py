"""Gradient descent over the loss of a deep network, next to the gradient flow it approximates.

Importing thalweg turns on JAX's 64-bit mode, because the effects it measures are often far below
single precision; set JAX_ENABLE_X64=0 in the environment to keep JAX as it is.
"""

import os as _os
from importlib import import_module as _import_module
from typing import Any as _Any

import jax as _jax

if _os.environ.get("JAX_ENABLE_X64", "1").lower() not in ("0", "false"):
    _jax.config.update("jax_enable_x64", True)

from thalweg import adversarial as adversarial
from thalweg import curvature as curvature
from thalweg import data as data
from thalweg import dynamics as dynamics
from thalweg import initialisation as initialisation
from thalweg import measurement as measurement
from thalweg import theorems as theorems
from thalweg._checks import InputError as InputError
from thalweg._version import __version__ as __version__
from thalweg.critical import critical_learning_rate as critical_learning_rate
from thalweg.curvature import extreme_eigenvalues as extreme_eigenvalues
from thalweg.curvature import sharpness as sharpness
from thalweg.curvature import smallest_eigenvalue as smallest_eigenvalue
from thalweg.dynamics import descend as descend
from thalweg.dynamics import distance as distance
from thalweg.dynamics import flow as flow
from thalweg.network import HomogeneousNetwork as HomogeneousNetwork
from thalweg.network import LinearNetwork as LinearNetwork
from thalweg.network import Model as Model
from thalweg.network import SharedNetwork as SharedNetwork
from thalweg.objective import Objective as Objective
from thalweg.problem import Classification as Classification
from thalweg.problem import Regression as Regression
from thalweg.problem import TargetMatrix as TargetMatrix
from thalweg.theorems import certify as certify
from thalweg.tubes import certified_step as certified_step
from thalweg.tubes import prove as prove
from thalweg.tubes import tube as tube
from thalweg.tubes import tube_along as tube_along

# Loaded when they are first asked for: settings, labelled arrays and stores take a second.
_LATER = {
    "Experiment": ("thalweg.experiment", "Experiment"),
    "sweep": ("thalweg.sweeps", "sweep"),
    "merge": ("thalweg.sweeps", "merge"),
    "open": ("thalweg.storage", "open_results"),
}


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(_import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
