"""A PyTorch module and its loss on data as an objective, and weights back into a module.

    objective = tw.torch.ModuleObjective(module, loss_fn, (inputs, targets))
    run = tw.descend(objective, objective.start, learning_rate=0.1, steps=1000)
    tw.torch.load_(module, run.final)

Weights are a dictionary of arrays by the names of the parameters that need a gradient; tied
parameters are one, under their first name. Frozen parameters and buffers stay what they were when
the objective was made: it looks at a copy of the module, so that training the module on changes
nothing of it, and it changes nothing of the module.
"""

import time as clock
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, final

import equinox as eqx
import numpy as np
from typing_extensions import override

from thalweg._arguments import checked
from thalweg._checks import InputError, described, is_traced, require_count
from thalweg._typing import AnyWeights
from thalweg.objective.host import AbstractHostObjective, Product
from thalweg.torch._loading import loaded_torch
from thalweg.torch.batches import Batches
from thalweg.torch.checks import declared_smooth, require_function, require_module
from thalweg.torch.evaluation import Evaluation, Tensors

_OPERATIONS = 1e10  # per second; times are estimated from them


@final
class ModuleObjective(AbstractHostObjective):
    """The loss of a PyTorch module, over all of the data, as a function of its parameters."""

    _evaluation: Evaluation = eqx.field(static=True)
    _smooth: bool = eqx.field(static=True)
    _seconds: float = eqx.field(static=True)

    @checked
    def __init__(
        self,
        module: Any,
        loss_fn: Callable[..., Any],
        data: Any,
        batch_size: int | None = None,
        *,
        smooth: bool = True,
    ):
        """Take a module, its loss and the data; what cannot be studied is refused here.

        Args:
            module: in evaluation mode if it has Dropout or BatchNorm; of float32 or float64.
            loss_fn: `loss_fn(outputs, targets)`, the mean over the samples of a batch, or their
                sum, which the objective tells apart where there are several batches.
            data: a pair of tensors (inputs, targets), a torch Dataset, or an iterable of such pairs
                that can be gone through again, such as a list or a DataLoader. Inputs that are a
                tuple or a dictionary are the module's arguments.
            batch_size: how many samples of a pair or a Dataset are taken at a time; of a pair all,
                of a Dataset 1000, if not given. Memory grows with it, and not with the data.
            smooth: False for a module with kinks. Those of torch's own modules are known; say it of
                functions that the module calls.
        """
        require_module(module, loss_fn)
        size = None if batch_size is None else require_count("batch_size", batch_size)
        own = _copied(module)
        with loaded_torch().random.fork_rng(devices=[]):  # which a shuffling DataLoader draws from
            evaluation = Evaluation(own, loss_fn, Batches(data, size, _device_of(own)))
            began = clock.perf_counter()
            require_function(evaluation, own)
        self._seconds = clock.perf_counter() - began
        self._evaluation = evaluation
        self._smooth = smooth and declared_smooth(own, loss_fn)

    @property
    def start(self) -> dict[str, np.ndarray]:
        """The weights that the module had when the objective was made."""
        return self._arrays(self._evaluation.start)

    @property
    @override
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(each.shape) for name, each in self._evaluation.start.items()}

    @property
    @override
    def smooth(self) -> bool:
        return self._smooth

    @property
    def samples(self) -> int:
        """Over how many samples the loss goes."""
        return self._evaluation.batches.samples

    def headline(self) -> dict[str, Any]:
        """What it prints first."""
        sizes = [each.numel() for each in self._evaluation.start.values()]
        return {"weights": sum(sizes), "samples": self.samples}

    @override
    def operations(self, weights: AnyWeights) -> int:
        """By the time that it took to look at the loss twice, forwards."""
        return int(_OPERATIONS * 1.5 * self._seconds)

    @override
    def as_weights(self, weights: Any, *, name: str = "weights", many: bool = True) -> AnyWeights:
        """Weights by name; those of a torch module, or of a dictionary of tensors, too."""
        if hasattr(weights, "named_parameters"):
            weights = _moved(weights)
        if isinstance(weights, Mapping):
            weights = {key: _array(each) for key, each in weights.items()}
        taken = super().as_weights(weights, name=name, many=many)
        dtypes = self._evaluation.dtypes
        return {
            key: each if is_traced(each) else np.asarray(each, dtypes[key])
            for key, each in taken.items()
        }

    @override
    def try_out(self, weights: AnyWeights) -> None:
        value = float(self.value_on_host(weights))
        if not np.isfinite(value):
            raise InputError(
                f"The loss must be finite where it starts, got {value}; did the run that the "
                "weights come from diverge?"
            )

    # --- on the host -------------------------------------------------------------------------

    @override
    def value_on_host(self, weights: AnyWeights) -> Any:
        return _array(self._evaluation.value(self._tensors(weights)))[()]

    @override
    def gradient_on_host(self, weights: AnyWeights) -> tuple[Any, AnyWeights]:
        value, gradient = self._evaluation.value_and_gradient(self._tensors(weights))
        return _array(value)[()], self._arrays(gradient)

    @override
    def product_on_host(self, weights: AnyWeights) -> Product:
        product = self._evaluation.product(self._tensors(weights))
        return lambda direction: self._arrays(product(self._tensors(direction)))

    @override
    def require_products(self, weights: AnyWeights) -> None:
        self._evaluation.require_products(self._evaluation.start)

    def _tensors(self, weights: AnyWeights) -> Tensors:
        torch, device = loaded_torch(), self._evaluation.device
        return {
            name: torch.tensor(np.asarray(weights[name], dtype), device=device)
            for name, dtype in self._evaluation.dtypes.items()
        }

    def _arrays(self, tensors: Tensors) -> dict[str, np.ndarray]:
        return {name: _array(each) for name, each in tensors.items()}


@checked
def load_(module: Any, weights: Any) -> None:
    """Write weights into a module, such as `run.final` or `flow.final` of a `ModuleObjective`.

    Args:
        module: its parameters that need a gradient are overwritten, and nothing else.
        weights: arrays by the names of these parameters.
    """
    torch = loaded_torch()
    parameters = _moved(module)
    if not isinstance(weights, Mapping) or set(weights) != set(parameters):
        got = sorted(weights) if isinstance(weights, Mapping) else described(weights)
        raise InputError(
            "`weights` must be a dictionary with the names of the module's parameters that need a "
            f"gradient, {', '.join(sorted(parameters))}, got {got}."
        )
    for name, parameter in parameters.items():
        if np.shape(weights[name]) != tuple(parameter.shape):
            raise InputError(
                f"`weights[{name!r}]` must have shape {tuple(parameter.shape)}, got "
                f"{np.shape(weights[name])}; take one point, such as `run.final`."
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.tensor(np.asarray(weights[name])))


def _moved(module: Any) -> dict[str, Any]:
    """The parameters that need a gradient, each once, by name."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def _device_of(module: Any) -> Any:
    return next(module.parameters()).device


def _copied(module: Any) -> Any:
    try:
        return deepcopy(module)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            "`module` must be one that copy.deepcopy can copy, so that training it on does not "
            f"change the objective, got a {type(module).__name__}: {error}."
        ) from error


def _array(tensor: Any) -> Any:
    """A tensor as NumPy's array, wherever it is; what is none stays as it is."""
    return tensor.detach().cpu().numpy().copy() if hasattr(tensor, "detach") else tensor
