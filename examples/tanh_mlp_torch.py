"""A fully connected tanh network at the edge of stability, trained in PyTorch.

    python examples/tanh_mlp_torch.py [folder]

The network of papers on the edge of stability, on 1000 handwritten digits that come with
scikit-learn, trained by gradient descent in a loop of one's own. A probe measures the sharpness on
the way; the gradient flow from the same start shows where it would go without the edge. The same
network in JAX, with the same weights, is tanh_mlp_jax.py.
"""

import sys
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.ticker import NullFormatter

import thalweg as tw

WIDTHS, IMAGES = (64, 100, 100, 10), 1000
RATES, TIME = (0.2, 0.1), 60.0


def data():
    """Images with mean 0 and deviation 1 over all pixels, and labels as unit vectors."""
    digits = tw.data.digits()
    images = np.asarray(digits.x)[:IMAGES]
    targets = np.eye(10)[np.asarray(digits.labels)[:IMAGES]]
    return torch.tensor((images - images.mean()) / images.std()), torch.tensor(targets)


def network():
    """The network, with weights that NumPy has drawn, so that JAX can have the same."""
    random, layers = np.random.default_rng(0), []
    for inputs, outputs in pairwise(WIDTHS):
        matrix = random.uniform(-1, 1, (inputs, outputs)) / np.sqrt(inputs)
        layer = torch.nn.Linear(inputs, outputs, dtype=torch.float64)
        tw.torch.load_(layer, {"weight": matrix.T, "bias": np.zeros(outputs)})
        layers += [layer, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def loss_fn(outputs, targets):
    """Half the mean over samples of the squared distance to the label's unit vector."""
    return ((outputs - targets) ** 2).sum(dim=1).mean() / 2


def trained(module, objective, rate, time):
    """What a probe saw of the user's own loop, twenty times on the way."""
    module, (images, targets) = deepcopy(module), data()
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    steps = round(time / rate)
    probe = tw.Probe(objective, every=max(steps // 20, 1), learning_rate=rate)
    for _ in range(steps + 1):
        probe(module)
        optimiser.zero_grad()
        loss_fn(module(images), targets).backward()
        optimiser.step()
    return probe


def draw(probes, flow, sharpness, folder):
    """Loss and sharpness over time, which for descent is learning rate x step."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for number, (rate, probe) in enumerate(probes.items()):
        seen, colour = probe.named(), f"C{number}"
        left.semilogy(rate * seen["step"], seen["loss"], color=colour, label=f"descent, {rate:g}")
        right.plot(rate * seen["step"], seen["sharpness"], "o-", ms=3, color=colour)
        right.axhline(2 / rate, color=colour, ls="--", lw=0.8)
        right.annotate(
            f"2 / {rate:g}", (1, 2 / rate), (4, 0), color=colour, va="center",
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
    left.semilogy(flow.times, flow.loss, "k", lw=1, label="gradient flow")
    right.plot(flow.times, sharpness, "k", lw=1)
    left.set(xlabel="time: learning rate x step", ylabel="loss")
    left.set_yticks([0.1, 0.2, 0.5], ["0.1", "0.2", "0.5"])
    left.yaxis.set_minor_formatter(NullFormatter())
    right.set(xlabel="time: learning rate x step", ylabel="sharpness", ylim=(0, None))
    left.legend(frameon=False)
    figure.savefig(folder / "tanh-mlp.png", dpi=150)


def main(folder="tanh-mlp", time=TIME):
    """Train at both rates, follow the flow, and draw."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    module = network()
    objective = tw.torch.ModuleObjective(module, loss_fn, data())
    print(objective)
    probes = {rate: trained(module, objective, rate, time) for rate in RATES}
    for rate, probe in probes.items():
        last = [each.sharpness for each in probe.records[-8:]]
        print(
            f"learning rate {rate:g}: 2 / rate = {2 / rate:g}, sharpness at the end "
            f"{min(last):.3g} to {max(last):.3g}"
        )
    flow = tw.flow(objective, objective.start, times=np.linspace(0, time, 21), rtol=1e-5, atol=1e-7)
    path = tw.curvature.spectrum_along(objective, flow, tolerance=1e-3)
    print(
        f"gradient flow: sharpness {path.largest[-1]:.3g} at time {time:g}, error of the weights "
        f"{flow.error[-1]:.1e}, {flow.gradient_evaluations} gradients by {flow.solver} steps"
    )
    draw(probes, flow, path.largest, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
