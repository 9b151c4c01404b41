"""What cannot be studied as a function of weights is refused before anything runs."""

from typing import Any

import numpy as np
from jaxtyping import Float

from thalweg._checks import InputError, described
from thalweg.torch._loading import loaded_torch
from thalweg.torch.batches import Batch, count_of, rows_of
from thalweg.torch.evaluation import Evaluation, Tensors, first_line

_KINKED = """
ReLU ReLU6 LeakyReLU PReLU RReLU Threshold Hardtanh Hardsigmoid Hardswish Hardshrink Softshrink
MaxPool1d MaxPool2d MaxPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
FractionalMaxPool2d FractionalMaxPool3d L1Loss SmoothL1Loss HuberLoss HingeEmbeddingLoss
MarginRankingLoss MultiMarginLoss relu leaky_relu l1_loss smooth_l1_loss huber_loss
"""
_SPLIT = 1e-3  # of the loss: two halves of a batch average to it but for rounding
_SAME = 1e-6  # of the loss: sums of batches that come in another order differ by rounding


def require_module(module: Any, loss_fn: Any) -> None:
    """Refuse what is no module, and parameters that cannot be moved or differentiated."""
    torch = loaded_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"`module` must be a torch.nn.Module, got {described(module)}.")
    if not callable(loss_fn):
        raise InputError(
            "`loss_fn` must be a function of outputs and targets, such as "
            f"torch.nn.functional.mse_loss, got {described(loss_fn)}."
        )
    moved = {name: each for name, each in module.named_parameters() if each.requires_grad}
    if not moved:
        raise InputError(
            "`module` must have at least one parameter that needs a gradient, got none; "
            "module.requires_grad_(True) lets all of them move."
        )
    for name, each in moved.items():
        if each.is_meta or torch.nn.parameter.is_lazy(each):
            raise InputError(
                "The parameters of `module` must have values, but "
                f"`{name}` has none yet; call a lazy module once, or move one from the meta device "
                "with module.to_empty(device='cpu') and initialise it."
            )
        if each.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"The parameters of `module` must be float32 or float64, got {each.dtype} of "
                f"`{name}`, too coarse for curvature; convert with module.float() or "
                "module.double()."
            )


def require_function(evaluation: Evaluation, module: Any) -> None:
    """Refuse a loss that is not one finite number, and the same each time it is asked.

    It says, too, whether the loss is a mean over samples or a sum.
    """
    torch, weights = loaded_torch(), evaluation.start
    buffers = {name: each.clone() for name, each in module.named_buffers()}
    with evaluation.undisturbed():  # which would else give the same random numbers again
        first, again = _evaluated(evaluation, weights), _evaluated(evaluation, weights)
    for counted in (first[0].sum(), again[0].sum()):
        if counted != evaluation.batches.samples:
            raise InputError(
                "`data` must be the same each time they are gone through, got "
                f"{evaluation.batches.samples} samples and then {counted:g}; give a list of "
                "batches, a Dataset or a DataLoader."
            )
    kept = all(torch.equal(each, buffers[name]) for name, each in module.named_buffers())
    if not np.isfinite(first).all():
        raise InputError(
            f"The loss must be finite at the module's present weights, got {first[1].sum()}; are "
            "there NaN in the weights or in `data`, or a logarithm of zero?"
        )
    # In which order samples come may change: then either means or sums over batches stay.
    stays = [
        abs(one.sum() - other.sum()) <= _SAME * abs(one).sum()
        for one, other in ((first[1], again[1]), (first.prod(axis=0), again.prod(axis=0)))
    ]
    if not (kept and any(stays)):
        raise InputError(_changing(module, first[1].sum(), again[1].sum(), kept))
    if not _moves(evaluation, weights):
        raise InputError(
            "The loss must depend on a parameter that needs a gradient, got one that depends on "
            "none; is something detached, or are other parameters used?"
        )
    if first.shape[1] > 1:
        evaluation.means = _is_mean(evaluation, weights)


def declared_smooth(module: Any, loss_fn: Any) -> bool:
    """Whether none of the module's parts is known to have a kink."""
    parts = [*module.modules(), loss_fn]
    activations = [getattr(part, "activation", None) for part in parts]
    names = [type(part).__name__ for part in parts]
    names += [getattr(each, "__name__", "") for each in [*activations, loss_fn]]
    return not set(_KINKED.split()) & set(names)


def _evaluated(evaluation: Evaluation, weights: Tensors) -> Float[np.ndarray, "two batches"]:
    """The size of each batch, and the loss of it, where it is one number."""
    torch, found = loaded_torch(), []
    for batch in evaluation.batches:
        try:
            loss = evaluation.returned(weights, batch)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                "`module` and `loss_fn` must take the batches of `data`, but torch says: "
                f"{first_line(error)}{_about_dtypes(weights, batch)}."
            ) from error
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else described(loss)
            raise InputError(
                f"`loss_fn` must return one number, got {'shape ' * isinstance(shape, tuple)}"
                f"{shape}; take the mean over the batch, as reduction='mean' does."
            )
        found.append((count_of(batch), float(loss)))
    return np.array(found, float).reshape(-1, 2).T


def _about_dtypes(weights: Tensors, batch: Batch) -> str:
    dtype = next(iter(weights.values())).dtype
    kinds = {each.dtype for each in _tensors(batch) if each.is_floating_point()}
    other = next(iter(kinds - {dtype}), None)
    fix = f"; the parameters are {dtype}, the data {other}: convert one of them"
    return "" if other is None else fix


def _tensors(part: Any) -> list[Any]:
    if isinstance(part, tuple | dict):
        parts = part.values() if isinstance(part, dict) else part
        return [tensor for each in parts for tensor in _tensors(each)]
    return [part] if isinstance(part, loaded_torch().Tensor) else []


def _changing(module: Any, first: float, again: float, kept: bool) -> str:
    """The sentence for a loss that changes, or that changes the module."""
    nn = loaded_torch().nn
    norms = nn.modules.batchnorm._BatchNorm
    drops = nn.modules.dropout._DropoutNd
    for name, part in module.named_modules():
        if part.training and isinstance(part, norms | drops):
            kind = "keeps statistics" if isinstance(part, norms) else "is random"
            return (
                f"`module` must be in evaluation mode, but its {type(part).__name__} "
                f"`{name or 'itself'}` {kind} in training mode; call module.eval() first."
            )
    what = f"{first:.8g} and then {again:.8g}" if kept else "buffers that change when it is called"
    return (
        "The loss must be the same number each time it is asked at the same weights, and change "
        f"nothing, got {what}; turn off random numbers and state in `module`, `loss_fn` and `data`."
    )


def _moves(evaluation: Evaluation, weights: Tensors) -> bool:
    torch = loaded_torch()
    leaves = {name: each.detach().requires_grad_() for name, each in weights.items()}
    with evaluation.undisturbed(), torch.enable_grad():
        return bool(evaluation.loss(leaves, next(iter(evaluation.batches))).requires_grad)


def _is_mean(evaluation: Evaluation, weights: Tensors) -> bool:
    """Whether the loss of a batch is the mean of its parts' losses by size, or their sum."""
    batch = max(evaluation.batches, key=count_of)
    count = count_of(batch)
    if count == 1:  # of which mean and sum are the same
        return getattr(evaluation.loss_fn, "reduction", "mean") != "sum"
    cut = max(count // 3, 1)
    with evaluation.undisturbed(), loaded_torch().no_grad():
        whole = float(evaluation.loss(weights, batch))
        parts = [
            float(evaluation.loss(weights, (rows_of(batch[0], rows), rows_of(batch[1], rows))))
            for rows in (slice(0, cut), slice(cut, count))
        ]
    mean = (cut * parts[0] + (count - cut) * parts[1]) / count
    room = _SPLIT * (abs(whole) + abs(parts[0]) + abs(parts[1]))
    if abs(mean - whole) <= room:
        return True
    if abs(sum(parts) - whole) <= room:
        return False
    raise InputError(
        "`loss_fn` must be a mean over samples, or a sum, where `data` come in several batches, "
        f"but of one batch it is {whole:.6g} and of two parts of it {parts[0]:.6g} and "
        f"{parts[1]:.6g}; give all data as one pair, in one batch."
    )
