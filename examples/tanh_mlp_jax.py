"""A fully connected tanh network at the edge of stability, trained in JAX.

    python examples/tanh_mlp_jax.py [folder]

The network of papers on the edge of stability, on 1000 handwritten digits that come with
scikit-learn, trained by gradient descent in a loop of one's own. A probe measures both ends of the
spectrum on the way and writes its page, of the larger learning rate: sharpness rises until it
reaches 2 / learning rate (progressive sharpening), and stays about there (the edge of stability).
The gradient flow from the same start has no such edge. The same network in PyTorch, with the same
weights, is tanh_mlp_torch.py.
"""

import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import thalweg as tw

WIDTHS, IMAGES = (64, 100, 100, 10), 1000
RATES, TIME = (0.2, 0.1), 60.0


def data():
    """Images with mean 0 and deviation 1 over all pixels, and labels as unit vectors."""
    digits = tw.data.digits()
    images = np.asarray(digits.x)[:IMAGES]
    targets = np.eye(10)[np.asarray(digits.labels)[:IMAGES]]
    return (images - images.mean()) / images.std(), targets


def start():
    """The weights of each layer, as NumPy draws them, so that PyTorch can have the same."""
    random = np.random.default_rng(0)
    return [
        {
            "matrix": random.uniform(-1, 1, (inputs, outputs)) / np.sqrt(inputs),
            "bias": np.zeros(outputs),
        }
        for inputs, outputs in pairwise(WIDTHS)
    ]


def loss(params, batch):
    """Half the mean over samples of the squared distance to the label's unit vector."""
    images, targets = batch
    for layer in params[:-1]:
        images = jnp.tanh(images @ layer["matrix"] + layer["bias"])
    outputs = images @ params[-1]["matrix"] + params[-1]["bias"]
    return jnp.mean(jnp.sum((outputs - targets) ** 2, axis=1)) / 2


def trained(objective, params, rate, time, folder):
    """A loop of one's own, with a probe in it that measures twenty times on the way."""
    gradient, steps = jax.jit(jax.grad(loss)), round(time / rate)
    every = max(steps // 20, 1)
    with tw.Probe(objective, every=every, learning_rate=rate, folder=folder) as probe:
        for _ in range(steps + 1):
            probe(params)
            slopes = gradient(params, objective.data)
            params = jax.tree.map(lambda w, s: w - rate * s, params, slopes)
    return probe


def main(folder="tanh-mlp-jax", time=TIME):
    """Train at both rates, and follow the flow."""
    objective, params = tw.FunctionObjective(loss, data()), start()
    for rate in RATES:
        probe = trained(objective, params, rate, time, folder if rate == max(RATES) else None)
        last = [each.sharpness for each in probe.records[-8:]]
        print(
            f"learning rate {rate:g}: 2 / rate = {2 / rate:g}, sharpness at the end "
            f"{min(last):.3g} to {max(last):.3g}"
        )
    flow = tw.flow(objective, params, times=np.linspace(0, time, 21), rtol=1e-5, atol=1e-7)
    found = tw.sharpness(objective, flow.final, tolerance=1e-3)
    print(
        f"gradient flow: sharpness {found.value:.3g} at time {time:g}, error of the weights "
        f"{flow.error[-1]:.1e}, {int(flow.gradient_evaluations)} gradients by {flow.solver} steps"
    )
    print(f"The page is {folder}/report.html")


if __name__ == "__main__":
    main(*sys.argv[1:])
