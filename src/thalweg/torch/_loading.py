"""PyTorch, which only those who give a module of it need."""

from importlib import import_module
from typing import Any

from thalweg._checks import InputError


def loaded_torch() -> Any:
    """The module `torch`, or one sentence on how to get it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise InputError(
            "`thalweg.torch` needs PyTorch, which is not installed; install it with "
            '"pip install thalweg[torch]", or "pip install torch" with its own instructions for '
            "your machine."
        ) from error
