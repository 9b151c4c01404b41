"""The loss of a module over batches, its gradient and its products with the Hessian, in torch.

With batches b of n_b of the n samples each, and l_b the loss on one of them,

    f = sum_b c_b l_b,    c_b = n_b / n for losses that are means over samples, 1 for sums,

and derivatives are summed alike, one batch after the other: they take no more memory than one batch
does. A product with the Hessian is the gradient of <grad f, v> (reverse over reverse). Of a single
batch the graph of the gradient is kept while the weights stay, so that another product costs about
as much as a gradient; the graph of several would grow with the data and is made anew for each.
Where an operation has no second derivative backwards, products go forward over reverse. (For all
they would take twice as long for small modules, and about as long for convolutions; and torch has
no forward rule for its own square loss.)
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from thalweg._checks import InputError
from thalweg.torch._loading import loaded_torch
from thalweg.torch.batches import Batch, Batches, count_of

Tensors = dict[str, Any]
Product = Callable[[Tensors], Tensors]


class Evaluation:
    """What a module and a loss make of weights, which are tensors by the parameters' names.

    Attributes:
        batches: the data.
        loss_fn: the loss of a batch, of outputs and targets.
        means: whether the loss is a mean over a batch's samples, and not their sum.
        device: where the module is.
        start: the weights that it came with.
        dtypes: theirs, as NumPy has them.
    """

    def __init__(self, module: Any, loss_fn: Callable[..., Any], batches: Batches):
        """Take a module that is not changed elsewhere."""
        self.batches, self.means = batches, True
        self._module, self.loss_fn = module, loss_fn
        self.device = next(module.parameters()).device
        self.start = {
            name: each.detach().clone()
            for name, each in module.named_parameters()
            if each.requires_grad
        }
        self.dtypes = {name: _dtype_of(each) for name, each in self.start.items()}
        # torch puts weights into the module while it is called: one call at a time.
        self._lock = threading.RLock()
        self._forward: bool | None = None  # whether products go forward over reverse

    def value(self, weights: Tensors) -> Any:
        """The value f."""
        with self.undisturbed(), loaded_torch().no_grad():
            return sum(share * self.loss(weights, batch) for share, batch in self._shares())

    def value_and_gradient(self, weights: Tensors) -> tuple[Any, Tensors]:
        """The value and the gradient."""
        torch = loaded_torch()
        leaves = _leaves(weights)
        total, sums = 0.0, [torch.zeros_like(each) for each in weights.values()]
        with self.undisturbed(), torch.enable_grad():
            for share, batch in self._shares():
                loss = share * self.loss(leaves, batch)
                total = total + loss.detach()
                for whole, part in zip(sums, _gradient(loss, leaves), strict=True):
                    whole += part
        return total, dict(zip(weights, sums, strict=True))

    def product(self, weights: Tensors) -> Product:
        """The function v -> H v."""
        self.require_products(weights)
        if self.batches.count == 1 and not self._forward:
            ((share, batch),) = self._shares()
            with self.undisturbed():
                kept = self._reverse(weights, share, batch)
            return self._locked(kept)
        way = self._ahead if self._forward else self._reverse

        def summed(direction: Tensors) -> Tensors:
            total: Tensors = {}
            for share, batch in self._shares():
                part = way(weights, share, batch)(direction)
                total = {name: total[name] + each for name, each in part.items()} if total else part
            return total

        return self._locked(summed)

    def require_products(self, weights: Tensors) -> None:
        """Find out which way products can go, once; refuse a module that has none."""
        if self._forward is not None:
            return
        refusals = []
        for forward, way in ((False, self._reverse), (True, self._ahead)):
            try:
                with self.undisturbed():
                    way(weights, *next(iter(self._shares())))(weights)
            except (RuntimeError, NotImplementedError) as refusal:
                refusals.append(refusal)
            else:
                self._forward = forward
                return
        raise InputError(
            "The Hessian needs second derivatives, but torch has none of this `module` with this "
            f"`loss_fn`: {first_line(refusals[0])}; replace the operation, descent needs no more "
            "than gradients."
        ) from refusals[0]

    def loss(self, weights: Tensors, batch: Batch) -> Any:
        """The loss of one batch: one number."""
        return self.returned(weights, batch).reshape(())

    def returned(self, weights: Tensors, batch: Batch) -> Any:
        """What the loss function returns for a batch."""
        inputs, targets = batch
        named = inputs if isinstance(inputs, dict) else {}
        placed = () if named else inputs if isinstance(inputs, tuple) else (inputs,)
        call = loaded_torch().func.functional_call
        return self.loss_fn(call(self._module, weights, placed, named), targets)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Alone, with attention that can be differentiated twice, random numbers left as found."""
        torch = loaded_torch()
        attention, fast = torch.nn.attention, torch.backends.mha
        devices = [self.device] if self.device.type == "cuda" else []
        twice = attention.sdpa_kernel(attention.SDPBackend.MATH)
        with self._lock, torch.random.fork_rng(devices), twice:
            was_fast = fast.get_fastpath_enabled()
            fast.set_fastpath_enabled(False)
            try:
                yield
            finally:
                fast.set_fastpath_enabled(was_fast)

    def _locked(self, product: Product) -> Product:
        def alone(direction: Tensors) -> Tensors:
            with self.undisturbed():
                return product(direction)

        return alone

    def _shares(self) -> Iterator[tuple[float, Batch]]:
        """The batches, each with its factor."""
        for batch in self.batches:
            yield (count_of(batch) / self.batches.samples if self.means else 1.0), batch

    # --- products with the Hessian of one batch ----------------------------------------------

    def _reverse(self, weights: Tensors, share: float, batch: Batch) -> Product:
        torch = loaded_torch()
        leaves = _leaves(weights)
        with torch.enable_grad():
            slopes = _gradient(share * self.loss(leaves, batch), leaves, create_graph=True)
        if self._forward is None:
            _require_graph(slopes)

        def times(direction: Tensors) -> Tensors:
            pairs = [
                (slope, change)
                for slope, change in zip(slopes, direction.values(), strict=True)
                if slope.requires_grad
            ]
            if not pairs:  # of a loss that is linear in all weights
                return {name: torch.zeros_like(each) for name, each in weights.items()}
            # As one number: where it is given vectors, torch first loads SymPy for half a second.
            with torch.enable_grad():
                along = sum((slope * change).sum() for slope, change in pairs)
            found = torch.autograd.grad(
                along, list(leaves.values()), retain_graph=True, materialize_grads=True
            )
            return dict(zip(weights, found, strict=True))

        return times

    def _ahead(self, weights: Tensors, share: float, batch: Batch) -> Product:
        func = loaded_torch().func

        def times(direction: Tensors) -> Tensors:
            slope = func.grad(lambda point: share * self.loss(point, batch))
            with warnings.catch_warnings():  # torch's own, about what it uses for such products
                warnings.simplefilter("ignore", DeprecationWarning)
                warnings.simplefilter("ignore", FutureWarning)  # as later versions call it
                return func.jvp(slope, (weights,), (direction,))[1]

        return times


def _leaves(weights: Tensors) -> Tensors:
    return {name: each.detach().requires_grad_() for name, each in weights.items()}


def _gradient(loss: Any, leaves: Tensors, create_graph: bool = False) -> tuple[Any, ...]:
    return loaded_torch().autograd.grad(
        loss, list(leaves.values()), create_graph=create_graph, materialize_grads=True
    )


def _require_graph(slopes: tuple[Any, ...]) -> None:
    """Refuse gradients that a function marked as once differentiable is part of.

    torch would leave its part out, and say nothing: the node that raises leads to no weights.
    """
    seen, waiting = set(), [slope.grad_fn for slope in slopes]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name().endswith("Error"):
            raise RuntimeError("a function of it is marked as once differentiable")
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]


def first_line(error: Exception) -> str:
    """What an error says, in one line without a full stop."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(". ")


def _dtype_of(tensor: Any) -> np.dtype:
    return np.dtype(str(tensor.dtype).removeprefix("torch."))
