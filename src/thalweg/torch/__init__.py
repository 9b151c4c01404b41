"""Modules of PyTorch as objectives: `ModuleObjective`, and `load_` for the way back.

Nothing here loads torch before it is asked for a module.
"""

from thalweg.torch.modules import ModuleObjective, load_

__all__ = ["ModuleObjective", "load_"]


def __dir__() -> list[str]:
    return __all__
