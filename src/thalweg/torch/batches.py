"""Data as batches (inputs, targets) that can be gone through again and again.

a pair of arrays      cut into batches of `batch_size` rows, or one batch
a torch Dataset       collated into batches of `batch_size` samples, in its own order
batches               any iterable of pairs: a list, a DataLoader; as they are
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from thalweg._checks import InputError, described
from thalweg.torch._loading import loaded_torch

Batch = tuple[Any, Any]

_COLLATED = 1000  # samples of a Dataset that are held at a time, if nothing else is said


class Batches:
    """Batches of inputs and targets, on one device.

    Attributes:
        count: how many batches there are.
        samples: how many samples there are in all of them.
    """

    def __init__(self, data: Any, batch_size: int | None, device: Any):
        """Take the data, and see that they can be gone through more than once."""
        self._device = device
        self._again: Callable[[], Any] = _source(data, batch_size)
        sizes = [count_of(batch) for batch in self]
        self.count, self.samples = len(sizes), sum(sizes)
        if 0 in (self.samples, *sizes):
            raise InputError(
                f"`data` must hold at least one sample in every batch, got {self.count} batches "
                f"with {self.samples} samples."
            )

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._again():
            yield self._placed(_pair(batch))

    def _placed(self, part: Any) -> Any:
        if isinstance(part, tuple | list):
            return tuple(map(self._placed, part))
        if isinstance(part, dict):
            return {name: self._placed(each) for name, each in part.items()}
        return as_tensor(part).to(self._device) if _is_array(part) else part


def count_of(batch: Batch) -> int:
    """How many samples a batch has: the rows of the first tensor of its inputs."""
    return _first_tensor(batch).shape[0]


def rows_of(part: Any, rows: slice) -> Any:
    """Some samples of a batch."""
    if isinstance(part, tuple):
        return tuple(rows_of(each, rows) for each in part)
    if isinstance(part, dict):
        return {name: rows_of(each, rows) for name, each in part.items()}
    return part[rows] if hasattr(part, "shape") else part


def as_tensor(array: Any) -> Any:
    """A tensor as it is; NumPy's and JAX's arrays as a copy."""
    torch = loaded_torch()
    return array if isinstance(array, torch.Tensor) else torch.tensor(np.asarray(array))


def _source(data: Any, batch_size: int | None) -> Callable[[], Any]:
    torch = loaded_torch()
    utilities = torch.utils.data
    if isinstance(data, utilities.TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if isinstance(data, utilities.Dataset):
        return partial(utilities.DataLoader, data, batch_size=batch_size or _COLLATED)
    if isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data)):
        return partial(_cut, tuple(map(as_tensor, data)), batch_size)
    if not hasattr(data, "__iter__"):
        raise InputError(
            "`data` must be a pair of tensors (inputs, targets), a torch Dataset or an iterable of "
            f"such pairs, got {described(data)}."
        )
    if iter(data) is data:
        raise InputError(
            "`data` must be the same each time it is gone through, but a generator is exhausted "
            "after the first; give a list of batches, a Dataset or a DataLoader."
        )
    if batch_size is not None:
        raise InputError(
            "`batch_size` must be left out where `data` are batches already; it cuts up a pair of "
            "tensors or a Dataset."
        )
    return lambda: data


def _cut(pair: Batch, batch_size: int | None) -> Iterator[Batch]:
    inputs, targets = pair
    count = inputs.shape[0] if inputs.ndim else -1
    if not targets.ndim or targets.shape[0] != count:
        raise InputError(
            "`data` must have one row per sample in inputs and targets, got shapes "
            f"{tuple(inputs.shape)} and {tuple(targets.shape)}."
        )
    rows = batch_size or max(count, 1)
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        yield inputs[part], targets[part]


def _pair(batch: Any) -> Batch:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(
            "Each batch of `data` must be a pair (inputs, targets), got "
            f"{described(batch)}; with a single tensor the pair itself is meant: (inputs, targets)."
        )
    return batch[0], batch[1]


def _is_array(part: Any) -> bool:
    return hasattr(part, "shape") and hasattr(part, "dtype")


def _first_tensor(part: Any) -> Any:
    if isinstance(part, tuple | dict):
        parts = part.values() if isinstance(part, dict) else part
        found = (_first_tensor(each) for each in parts)
        return next((each for each in found if each is not None), None)
    return part if _is_array(part) and len(part.shape) > 0 else None
