"""A small transformer that learns to sort, at the edge of stability, in PyTorch.

    python examples/sorting_transformer_torch.py [folder]

Sequences of eight digits go in, the same digits in order are to come out, all places at once. The
transformer has one layer with attention, layer normalisation and GELU. It is trained twice: by
gradient descent on all sequences, and by stochastic descent on small batches of them. One objective
measures both, against the loss over all sequences.
"""

import sys
from copy import deepcopy
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import thalweg as tw

LENGTH, DIGITS, WIDTH, SEQUENCES = 8, 10, 24, 256
RATE, STEPS, BATCH = 0.2, 1500, 32


class Sorter(nn.Module):
    """Digits and places are embedded, attended to once, and read out."""

    def __init__(self):
        super().__init__()
        self.digit = nn.Embedding(DIGITS, WIDTH)
        self.place = nn.Parameter(torch.randn(LENGTH, WIDTH) / 2)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True
        )
        self.out = nn.Linear(WIDTH, DIGITS)

    def forward(self, sequences):
        """Ten logits at each place."""
        return self.out(self.layer(self.digit(sequences) + self.place))


def loss_fn(logits, ordered):
    """The mean cross-entropy over all places of all sequences."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), ordered.flatten())


def trained(module, objective, sequences, ordered, batch, steps):
    """What a probe saw of a loop that draws so many sequences for each step."""
    module = deepcopy(module)
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
    probe = tw.Probe(objective, every=max(steps // 25, 1), learning_rate=RATE)
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps + 1):
        probe(module)
        chosen = torch.randperm(SEQUENCES, generator=draw)[:batch]
        optimiser.zero_grad()
        loss_fn(module(sequences[chosen]), ordered[chosen]).backward()
        optimiser.step()
    right = (module(sequences).argmax(dim=2) == ordered).double().mean().item()
    return probe, right


def draw(probes, folder):
    """The loss over all sequences, and both ends of the spectrum, over steps."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for number, (name, probe) in enumerate(probes.items()):
        seen, colour = probe.named(), f"C{number}"
        left.semilogy(seen["step"], seen["loss"], color=colour, label=name)
        right.plot(seen["step"], seen["sharpness"], "o-", ms=3, color=colour, label=name)
        right.plot(seen["step"], seen["smallest_eigenvalue"], color=colour, lw=0.8, ls=":")
    right.axhline(2 / RATE, color="k", ls="--", lw=0.8)
    right.annotate(f"2 / {RATE:g}", (seen["step"][-1], 2 / RATE), ha="right", va="bottom")
    left.set(xlabel="step", ylabel="loss over all sequences")
    right.set(xlabel="step", ylabel="largest (o) and smallest (dotted) eigenvalue")
    left.legend(frameon=False)
    figure.savefig(folder / "sorting-transformer.png", dpi=150)


def main(folder="sorting-transformer", steps=STEPS):
    """Train on all sequences and on batches, and draw."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    sequences = torch.randint(DIGITS, (SEQUENCES, LENGTH))
    ordered = sequences.sort(dim=1).values
    module = Sorter()
    objective = tw.torch.ModuleObjective(module, loss_fn, (sequences, ordered))
    print(objective)
    probes = {}
    for name, batch in (("all sequences", SEQUENCES), (f"batches of {BATCH}", BATCH)):
        probe, right = trained(module, objective, sequences, ordered, batch, steps)
        sharpest = max(probe.records, key=lambda each: each.sharpness)
        print(
            f"{name}: loss {probe.records[-1].loss:.3g}, {right:.1%} of the places right, "
            f"2 / rate = {2 / RATE:g}, sharpness {probe.records[0].sharpness:.3g} at the start, "
            f"{sharpest.sharpness:.3g} at step {sharpest.step}, "
            f"{probe.records[-1].sharpness:.3g} at the end"
        )
        probes[name] = probe
    draw(probes, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
