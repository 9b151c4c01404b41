"""Slow and obvious implementations to hold the package against.

Nothing here comes from the package: losses are written on the raw samples, networks layer by layer
for one sample, derivatives are left to JAX's autodiff (or to loops in NumPy).
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.signal import correlate2d

# --- networks: (weights, one sample) -> outputs ------------------------------------------------


def activation(z, slopes):
    """alpha max(z, 0) - beta max(-z, 0), written so that autodiff is exact off zero."""
    return slopes[0] * jnp.maximum(z, 0) - slopes[1] * jnp.maximum(-z, 0)


def chain_of_layers(weights, sample, slopes=(1.0, 1.0), readout=None):
    """A fully connected network on one sample; slopes (1, 1) make it linear."""
    for matrix in weights[:-1]:
        sample = activation(matrix @ sample, slopes)
    sample = weights[-1] @ sample
    return sample if readout is None else readout.T @ sample


def tied_matrix(weight, pattern):
    """The matrix with coordinate c of the flat weight wherever the pattern says c, else zero."""
    return jnp.where(pattern < 0, 0.0, weight.ravel()[pattern])


def convolution_pattern(shape, image, stride=(1, 1), padding=(0, 0)):
    """Which coordinate of a kernel array connects which pixel to which output: by definition."""
    out_channels, in_channels, taps_down, taps_right = shape
    heights = range(0, image[0] + 2 * padding[0] - taps_down + 1, stride[0])
    widths = range(0, image[1] + 2 * padding[1] - taps_right + 1, stride[1])
    coordinates = np.arange(np.prod(shape)).reshape(shape)
    rows = []
    for o in range(out_channels):
        for top in heights:
            for left in widths:
                row = np.full((in_channels, *image), -1)
                for c, a, b in np.ndindex(in_channels, taps_down, taps_right):
                    y, x = top + a - padding[0], left + b - padding[1]
                    if 0 <= y < image[0] and 0 <= x < image[1]:
                        row[c, y, x] = coordinates[o, c, a, b]
                rows.append(row.ravel())
    return np.array(rows)


def correlate(weight, images):
    """Images (samples, channels, height, width) with each kernel by scipy, channels added up."""
    return np.array(
        [
            [
                sum(
                    correlate2d(channel, tap, mode="valid")
                    for channel, tap in zip(image, kernel, strict=True)
                )
                for kernel in weight
            ]
            for image in images
        ]
    )


def largest_of_windows(images):
    """Max pooling over windows of 2 x 2, one window after the other."""
    samples, channels, height, width = images.shape
    pooled = np.empty((samples, channels, height // 2, width // 2))
    for i in range(height // 2):
        for j in range(width // 2):
            window = images[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
            pooled[:, :, i, j] = window.max(axis=(2, 3))
    return pooled


def max_pooling_network(weights, x):
    """The network with max pooling of elkabetz2021, figure 3, in NumPy."""
    weights = [np.asarray(array) for array in weights]
    images = np.pad(x.reshape(-1, 1, 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for weight, bias in (weights[0:2], weights[2:4]):
        responses = correlate(weight, images) + bias[None, :, None, None]
        images = largest_of_windows(np.maximum(responses, 0))
    rows = images.reshape(len(images), -1)
    for weight, bias in (weights[4:6], weights[6:8]):
        rows = np.maximum(rows @ weight.T + bias, 0)
    return rows @ weights[8].T + weights[9]


def subsampling_network(weights, x):
    """The adapted network of the same figure: full convolutions, then every second entry."""
    weights = [np.asarray(array) for array in weights]
    images = np.pad(x.reshape(-1, 1, 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for weight in weights[:2]:
        images = np.maximum(correlate(weight, images), 0)[:, :, ::2, ::2]
    rows = images.reshape(len(images), -1)
    for weight in weights[2:4]:
        rows = np.maximum(rows @ weight.T, 0)
    return rows @ weights[4].T


# --- losses: outputs (samples, outputs) -> number ------------------------------------------------


def squared_error(outputs, targets, scale):
    """Scale * mean over samples of the squared distance to the target."""
    return scale * jnp.sum((outputs - targets) ** 2) / len(targets)


def cross_entropy(outputs, labels):
    """Mean of minus the log of the softmax at the label."""
    chances = jnp.exp(outputs) / jnp.sum(jnp.exp(outputs), axis=1, keepdims=True)
    return -jnp.mean(jnp.log(chances[np.arange(len(labels)), labels]))


def logistic(outputs, signs):
    """Mean of log(1 + exp(-sign * output))."""
    return jnp.mean(jnp.log(1 + jnp.exp(-signs * outputs[:, 0])))


def exponential(outputs, signs):
    """Mean of exp(-sign * output)."""
    return jnp.mean(jnp.exp(-signs * outputs[:, 0]))


def half_squared_distance(matrix, target):
    """|matrix - target|_F^2 / 2."""
    return jnp.sum((matrix - target) ** 2) / 2


# --- derivatives ---------------------------------------------------------------------------------


def with_decay(loss, decay):
    """The loss plus decay / 2 times the squared norm of the weights."""

    def decayed(weights):
        return loss(weights) + decay / 2 * sum(jnp.sum(array**2) for array in weights)

    return decayed


def hvp(loss, weights, direction):
    """The Hessian times a direction: the gradient of the slope along the direction."""

    def slope(at):
        return jax.jvp(loss, (at,), (direction,))[1]

    return jax.grad(slope)(weights)


def hessian(loss, weights):
    """The dense Hessian of the concatenated weights, by jax.hessian."""
    point, unravel = ravel_pytree(weights)
    return jax.hessian(lambda flat: loss(unravel(flat)))(point)


def relative_error(got, expected):
    """|got - expected| / |expected| over all arrays at once (absolute where expected is zero)."""
    got, expected = ravel_pytree(got)[0], ravel_pytree(expected)[0]
    assert got.shape == expected.shape, (got.shape, expected.shape)
    size = np.linalg.norm(expected)
    return float(np.linalg.norm(got - expected) / (size if size > 0 else 1.0))


# --- the deterministic examples of the papers' checks -----------------------------------------


def marion_data(samples, features=3):
    """X[i, j] = cos(i j) + 1{(i - 1) mod d = j - 1} with indices from 1."""
    i, j = np.meshgrid(np.arange(1, samples + 1), np.arange(1, features + 1), indexing="ij")
    return np.cos(i * j) + ((i - 1) % features == j - 1)


def marion_data_a():
    """Eight samples with y = sin(i)."""
    return marion_data(8), np.sin(np.arange(1, 9))


def marion_data_b():
    """Twelve samples with y = X (1, -1, 1/2) + sin(i) / 10."""
    x = marion_data(12)
    return x, x @ np.array([1.0, -1.0, 0.5]) + 0.1 * np.sin(np.arange(1, 13))


def marion_weights(widths, scale, offset):
    """W_k[a, b] = scale sin(offset + a + 2 b + 3 k) with indices from 1."""
    weights = []
    for k, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        a, b = np.meshgrid(np.arange(1, outputs + 1), np.arange(1, inputs + 1), indexing="ij")
        weights.append(jnp.asarray(scale * np.sin(offset + a + 2 * b + 3 * k)))
    return tuple(weights)


def elkabetz_weights():
    """The three layers 2 -> 2 -> 2 -> 1 of some small examples."""
    first, second, third = [[1, 2], [0, 1]], [[1, -1], [1, 1]], [[1, 3]]
    return tuple(jnp.asarray(matrix) / 2 for matrix in (first, second, third))
