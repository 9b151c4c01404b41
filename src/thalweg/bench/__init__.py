"""Speed next to the plain way of doing the same, always as a ratio within one run.

Machines are shared and noisy, so ours and the plain way take turns and each keeps its best round.
"""

from collections.abc import Callable, Iterator, Sequence

from thalweg._checks import InputError
from thalweg.bench import curvature, descent, flow, modules, sweep
from thalweg.bench.comparison import Comparison

__all__ = [
    "BENCHMARKS",
    "Comparison",
    "curvature",
    "descent",
    "flow",
    "measure",
    "modules",
    "sweep",
]


def __dir__() -> list[str]:
    return __all__


BENCHMARKS: dict[str, dict[str, Callable[[], Comparison]]] = {
    "descent": {
        "1000 small networks": descent.small_networks,
        "linear network on MNIST": descent.linear_network_on_mnist,
    },
    "flow": flow.BENCHMARKS,
    "curvature": {
        "200 runs": curvature.sharpness_along_runs,
        "linear network on MNIST": curvature.linear_ends_on_mnist,
        "ReLU network on MNIST": curvature.ends_on_mnist,
        "ResNet in torch": modules.sharpness_of_convolutions,
        "both ends of it": modules.ends_of_convolutions,
    },
    "sweep": {"figure 1 of marion2024": sweep.figure_of_marion},
}


def measure(names: Sequence[str], announce: Callable[[str], None]) -> Iterator[Comparison]:
    """Run the named groups of benchmarks; without names, all for which there is what they need."""
    for name in names:
        if name not in BENCHMARKS:
            raise InputError(f"A benchmark must be one of {', '.join(BENCHMARKS)}, got {name!r}.")
    for group in names or BENCHMARKS:
        for title, benchmark in BENCHMARKS[group].items():
            announce(f"{group}: {title}")
            try:
                yield benchmark()
            except InputError as missing:
                if names:
                    raise
                announce(f"left out: {missing}")
