"""A convolutional network in PyTorch: its sharpness, next to the tools that PyTorch's users have.

Every tool has a process of its own, so that its peak of memory can be told, and the same module,
images and batches in single precision. PyHessian takes power iterations, curvlinops gives scipy's
eigsh an operator. Eigenvalues of projections never exceed the largest one: the largest that any
tool found is nearest to it, and a tool that is farther off than `_ACCURACY` is asked for more.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from thalweg._checks import InputError
from thalweg.bench.comparison import Comparison
from thalweg.bench.rivals import by_eigsh
from thalweg.curvature import extreme_eigenvalues, sharpness
from thalweg.curvature.operators import HessianOperator, products_of
from thalweg.torch import ModuleObjective

_ACCURACY = 1e-3
_IMAGES, _BATCH, _FEW = 40, 20, 10  # seconds grow with the images, memory with the batch


@dataclass(frozen=True)
class Found:
    """What a tool found, and what that took.

    Attributes:
        largest: the largest eigenvalue.
        smallest: the smallest; not a number where it was not asked for.
        products: how many products with the Hessian; 0 where the tool does not say.
        seconds: all of it, from the module and its data on.
        processor: the same in seconds of processor, of which other work takes nothing.
        megabytes: the peak of memory of its process.
    """

    largest: float
    smallest: float
    products: int
    seconds: float
    processor: float = 0.0
    megabytes: float = 0.0


def sharpness_of_convolutions() -> Comparison:
    """Ours next to the fastest of the other tools that is as accurate."""
    rivals = [tool for tool in ("pyhessian", "curvlinops") if find_spec(tool) is not None]
    if find_spec("torch") is None or not rivals:
        raise InputError("This needs torch, and PyHessian or curvlinops; `make bench` has them.")
    found = {tool: _in_a_process(tool, _ACCURACY) for tool in ("ours", *rivals)}
    for tolerance in (_ACCURACY / 10, _ACCURACY / 100):
        best = max(each.largest for each in found.values())
        for tool in [name for name, each in found.items() if _off(each, best) > _ACCURACY]:
            found[tool] = _in_a_process(tool, tolerance)
    best = max(each.largest for each in found.values())
    fastest = min(rivals, key=lambda tool: found[tool].seconds)
    return Comparison(
        what=f"sharpness of a ResNet of 272,474 weights in torch, {_IMAGES} images",
        unit="s",
        ours=found["ours"].seconds,
        plain=found[fastest].seconds,
        bar=0.83,
        note="; ".join(_described(tool, each, best) for tool, each in found.items()),
    )


def ends_of_convolutions() -> Comparison:
    """Both ends at the start and after some steps, next to scipy's eigsh on the same products."""
    if find_spec("torch") is None:
        raise InputError("This needs torch; `make bench` installs it.")
    torch = import_module("torch")
    module, inputs, labels = network_and_images(torch, _FEW)
    counts, notes = np.zeros(2), []
    for steps in (0, 50):
        _descend(torch, module, inputs, labels, steps)
        objective = ModuleObjective(module, torch.nn.CrossEntropyLoss(), (inputs, labels))
        mine = extreme_eigenvalues(objective, objective.start, tolerance=_ACCURACY)
        ours, high = mine.largest[0].matvecs, mine.largest[0].value
        operator = HessianOperator(objective, objective.start)
        plain = by_eigsh(products_of(operator), operator.size, _ACCURACY)
        counts += (ours, plain.products)
        gap = max(abs(high - plain.largest), abs(mine.smallest[0].value - plain.smallest))
        notes.append(
            f"after {steps} steps {ours} and {plain.products}, sharpness {high:.3g}, "
            f"apart by {gap / high:.0e}"
        )
    return Comparison(
        what=f"both ends of the same, {_FEW} images, next to scipy's eigsh",
        unit="products",
        ours=counts[0],
        plain=counts[1],
        bar=3,
        note="; ".join(notes),
    )


def _off(found: Found, best: float) -> float:
    return 1 - found.largest / best


def _described(tool: str, found: Found, best: float) -> str:
    products = f", {found.products} products" if found.products else ""
    return (
        f"{tool}: {found.seconds:.3g} s, of processor {found.processor:.3g}, "
        f"{found.megabytes:.0f} MB{products}, off by "
        f"{_off(found, best):.0e}"
    )


# --- the network ---------------------------------------------------------------------------------


def network_and_images(torch: Any, count: int) -> tuple[Any, Any, Any]:
    """A ResNet with 20 layers, random images of ten kinds, and which kind each is."""
    torch.manual_seed(0)
    kinds = torch.nn.functional.interpolate(
        torch.randn(10, 3, 8, 8), scale_factor=4, mode="bilinear"
    )
    labels = torch.arange(count) % 10
    inputs = kinds[labels] + torch.randn(count, 3, 32, 32) / 2
    module = _resnet(torch.nn)
    module.train()
    with torch.no_grad():  # so that batch normalisation knows its statistics
        for _ in range(20):
            module(kinds.repeat(3, 1, 1, 1) + torch.randn(30, 3, 32, 32) / 2)
    return module.eval(), inputs, labels


def _resnet(nn: Any) -> Any:
    class Block(nn.Module):
        def __init__(self, before: int, width: int, stride: int):
            super().__init__()
            self.inner = nn.Sequential(
                *_convolved(nn, before, width, 3, stride), nn.ReLU(),
                *_convolved(nn, width, width, 3, 1),
            )  # fmt: skip
            around = [] if before == width else _convolved(nn, before, width, 1, stride)
            self.around = nn.Sequential(*around)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.around(x) + self.inner(x))

    parts, before = [*_convolved(nn, 3, 16, 3, 1), nn.ReLU()], 16
    for width in (16, 32, 64):
        for place in range(3):
            parts.append(Block(before, width, 2 if place == 0 and width > 16 else 1))
            before = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def _convolved(nn: Any, before: int, width: int, size: int, stride: int) -> list[Any]:
    return [
        nn.Conv2d(before, width, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(width),
    ]


def _descend(torch: Any, module: Any, inputs: Any, labels: Any, steps: int) -> None:
    optimiser = torch.optim.SGD(module.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), labels).backward()
        optimiser.step()
    optimiser.zero_grad()


# --- the tools, each in its process --------------------------------------------------------------


def _in_a_process(tool: str, tolerance: float) -> Found:
    command = [sys.executable, "-W", "ignore", "-m", __name__, tool, str(tolerance)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Found(**json.loads(told.splitlines()[-1]))


def _ours(torch: Any, module: Any, batches: list[Any], tolerance: float) -> Found:
    began = time.perf_counter()
    objective = ModuleObjective(module, torch.nn.CrossEntropyLoss(), batches)
    # Its tolerance is a bound of the error, which the true one is a hundredth of and less.
    top = sharpness(objective, objective.start, tolerance=10 * tolerance)
    return Found(top.value, np.nan, top.matvecs, time.perf_counter() - began)


def _pyhessian(torch: Any, module: Any, batches: list[Any], tolerance: float) -> Found:
    kind = import_module("pyhessian").hessian
    began = time.perf_counter()
    tool = kind(module, torch.nn.CrossEntropyLoss(), dataloader=batches, cuda=False)
    found = tool.eigenvalues(maxIter=1000, tol=tolerance)[0][0]
    return Found(float(found), np.nan, 0, time.perf_counter() - began)


def _curvlinops(torch: Any, module: Any, batches: list[Any], tolerance: float) -> Found:
    kind = import_module("curvlinops").HessianLinearOperator
    began = time.perf_counter()
    moved = list(module.parameters())
    operator = kind(
        module, torch.nn.CrossEntropyLoss(), moved, batches, check_deterministic=False
    ).to_scipy()
    size = operator.shape[0]
    found = by_eigsh(lambda v: operator @ v.astype(np.float32), size, tolerance, ("LA",))
    return Found(found.largest, np.nan, found.products, time.perf_counter() - began)


_TOOLS: dict[str, Callable[[Any, Any, list[Any], float], Found]] = {
    "ours": _ours,
    "pyhessian": _pyhessian,
    "curvlinops": _curvlinops,
}


def main(tool: str, tolerance: float) -> None:
    """Let one tool work, and print what it found as JSON."""
    torch = import_module("torch")
    module, inputs, labels = network_and_images(torch, _IMAGES)
    batches = list(zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True))
    began = time.process_time()
    found = asdict(_TOOLS[tool](torch, module, batches, tolerance))
    found["processor"] = time.process_time() - began
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
