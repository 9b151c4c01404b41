"""Gradient descent over the loss of a deep network, next to the gradient flow it approximates.

Importing thalweg turns on JAX's 64-bit mode, because the effects it measures are often far below
single precision; set JAX_ENABLE_X64=0 in the environment to keep JAX as it is. It loads nothing
else: every name brings its modules, and JAX, when it is first asked for. Where JAX is not loaded
yet, its mode is set by that environment variable, which programs started from here inherit.
"""

import os as _os
import sys as _sys
import typing as _typing
from importlib import import_module as _import_module

from thalweg._errors import InputError as InputError
from thalweg._version import __version__ as __version__

if "jax" not in _sys.modules:
    _os.environ.setdefault("JAX_ENABLE_X64", "1")
elif _os.environ.get("JAX_ENABLE_X64", "1").lower() not in ("0", "f", "false", "n", "no", "off"):
    _import_module("jax").config.update("jax_enable_x64", True)

if _typing.TYPE_CHECKING:  # what editors and type checkers see; a test holds both lists together
    from thalweg import adversarial as adversarial
    from thalweg import certificates as certificates
    from thalweg import critical as critical
    from thalweg import curvature as curvature
    from thalweg import data as data
    from thalweg import dynamics as dynamics
    from thalweg import initialisation as initialisation
    from thalweg import measurement as measurement
    from thalweg import network as network
    from thalweg import objective as objective
    from thalweg import optimisers as optimisers
    from thalweg import probes as probes
    from thalweg import problem as problem
    from thalweg import proofs as proofs
    from thalweg import quantities as quantities
    from thalweg import solvers as solvers
    from thalweg import storage as _storage
    from thalweg import theorems as theorems
    from thalweg import torch as torch
    from thalweg import tubes as tubes
    from thalweg._compiled import keep_compiled as keep_compiled
    from thalweg.critical import critical_learning_rate as critical_learning_rate
    from thalweg.curvature import extreme_eigenvalues as extreme_eigenvalues
    from thalweg.curvature import layer_spectra as layer_spectra
    from thalweg.curvature import sharpness as sharpness
    from thalweg.curvature import smallest_eigenvalue as smallest_eigenvalue
    from thalweg.dynamics import central_flow as central_flow
    from thalweg.dynamics import compare as compare
    from thalweg.dynamics import descend as descend
    from thalweg.dynamics import distance as distance
    from thalweg.dynamics import flow as flow
    from thalweg.experiment import Experiment as Experiment
    from thalweg.explorer import explore as explore
    from thalweg.network import HomogeneousNetwork as HomogeneousNetwork
    from thalweg.network import LinearNetwork as LinearNetwork
    from thalweg.network import Model as Model
    from thalweg.network import SharedNetwork as SharedNetwork
    from thalweg.objective import FunctionObjective as FunctionObjective
    from thalweg.objective import Objective as Objective
    from thalweg.probes import Probe as Probe
    from thalweg.problem import Classification as Classification
    from thalweg.problem import Regression as Regression
    from thalweg.problem import TargetMatrix as TargetMatrix
    from thalweg.proofs import prove as prove
    from thalweg.reports import report as report
    from thalweg.sweeps import merge as merge
    from thalweg.sweeps import sweep as sweep
    from thalweg.theorems import certify as certify
    from thalweg.tubes import certified_step as certified_step
    from thalweg.tubes import tube as tube
    from thalweg.tubes import tube_along as tube_along

    open = _storage.open_results  # noqa: A001

# Where each name is, "module" or "module:attribute"; loaded when it is first asked for.
_LATER = {
    "Classification": "problem:Classification",
    "Experiment": "experiment:Experiment",
    "FunctionObjective": "objective:FunctionObjective",
    "HomogeneousNetwork": "network:HomogeneousNetwork",
    "LinearNetwork": "network:LinearNetwork",
    "Model": "network:Model",
    "Objective": "objective:Objective",
    "Probe": "probes:Probe",
    "Regression": "problem:Regression",
    "SharedNetwork": "network:SharedNetwork",
    "TargetMatrix": "problem:TargetMatrix",
    "adversarial": "adversarial",
    "central_flow": "dynamics:central_flow",
    "certificates": "certificates",
    "certified_step": "tubes:certified_step",
    "certify": "theorems:certify",
    "compare": "dynamics:compare",
    "critical": "critical",
    "critical_learning_rate": "critical:critical_learning_rate",
    "curvature": "curvature",
    "data": "data",
    "descend": "dynamics:descend",
    "distance": "dynamics:distance",
    "dynamics": "dynamics",
    "explore": "explorer:explore",
    "extreme_eigenvalues": "curvature:extreme_eigenvalues",
    "flow": "dynamics:flow",
    "initialisation": "initialisation",
    "keep_compiled": "_compiled:keep_compiled",
    "layer_spectra": "curvature:layer_spectra",
    "measurement": "measurement",
    "merge": "sweeps:merge",
    "network": "network",
    "objective": "objective",
    "open": "storage:open_results",
    "optimisers": "optimisers",
    "probes": "probes",
    "problem": "problem",
    "proofs": "proofs",
    "prove": "proofs:prove",
    "quantities": "quantities",
    "report": "reports:report",
    "sharpness": "curvature:sharpness",
    "smallest_eigenvalue": "curvature:smallest_eigenvalue",
    "solvers": "solvers",
    "sweep": "sweeps:sweep",
    "theorems": "theorems",
    "torch": "torch",
    "tube": "tubes:tube",
    "tube_along": "tubes:tube_along",
    "tubes": "tubes",
}

__all__ = ["InputError", *_LATER]  # pyright: ignore[reportUnsupportedDunderAll]


if not _typing.TYPE_CHECKING:  # or checkers would take every misspelt name for one of ours

    def __getattr__(name: str) -> _typing.Any:
        if name not in _LATER:
            raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
        module, _, attribute = _LATER[name].partition(":")
        found = _import_module(f"thalweg.{module}")
        globals()[name] = getattr(found, attribute) if attribute else found
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
