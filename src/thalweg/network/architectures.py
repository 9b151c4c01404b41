"""The two convolutional networks of elkabetz2021, figure 3, for rows of 784 pixels.

Both see an image of 28 x 28 with two rows of zeros on each side, and ten classes come out:

    max_pooling_network    convolution 1 -> 6, 5 x 5, ReLU, max pooling 2 x 2;    61706 weights
                           convolution 6 -> 16, 5 x 5, ReLU, max pooling 2 x 2;
                           dense 400 -> 120, ReLU, 120 -> 84, ReLU, 84 -> 10; biases everywhere
    strided_network        the same without biases, and keeping the upper left    61470 weights
                           entry of each pooling window instead of the largest

The first is the network of PyTorch's "60 Minute Blitz". Its biases and max pooling are outside the
theory of shared weights; the second is inside, because to keep one entry of each window is to
convolve with stride 2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thalweg._typing import Weights
from thalweg.network.layered import LayeredNetwork, SharedNetwork
from thalweg.network.layers import Convolution, Dense
from thalweg.network.model import Model

_FIRST = Convolution(1, 6, kernel=5, image=28, padding=2)
_SECOND = Convolution(6, 16, kernel=5, image=14)
_DENSE = (Dense(400, 120), Dense(120, 84), Dense(84, 10))


def max_pooling_network() -> Model:
    """The network with max pooling and biases.

    The weights are each layer's array followed by its bias: convolutions (6, 1, 5, 5), (6,),
    (16, 6, 5, 5), (16,), then matrices (120, 400), (120,), (84, 120), (84,), (10, 84), (10,);
    `weights[::2]` leaves the biases out.
    """
    shapes = []
    for layer in (_FIRST, _SECOND, *_DENSE):
        shapes += [layer.shape, layer.shape[:1]]
    return Model(_apply_with_max_pooling, shapes, features=784, outputs=10, smooth=False)


def strided_network() -> LayeredNetwork:
    """The network with stride 2 instead of pooling, and no biases.

    The weights are convolutions (6, 1, 5, 5), (16, 6, 5, 5), then matrices (120, 400), (84, 120),
    (10, 84).
    """
    first = Convolution(1, 6, kernel=5, image=28, stride=2, padding=2)
    second = Convolution(6, 16, kernel=5, image=14, stride=2)
    return SharedNetwork([first, second, *_DENSE])


def _apply_with_max_pooling(
    weights: Weights, x: Float[Array, "samples 784"]
) -> Float[Array, "samples 10"]:
    arrays, biases = weights[::2], weights[1::2]
    for layer, array, bias in zip((_FIRST, _SECOND), arrays[:2], biases[:2], strict=True):
        images = layer(jnp.asarray(array), x).reshape(-1, layer.out_channels, *layer.out_image)
        # ReLU is monotone, so it may follow the pooling, where three quarters are gone already.
        x = jax.nn.relu(_max_pool(images + bias[None, :, None, None])).reshape(x.shape[0], -1)
    for array, bias in zip(arrays[2:-1], biases[2:-1], strict=True):
        x = jax.nn.relu(x @ array.T + bias[None])
    return x @ arrays[-1].T + biases[-1][None]


def _max_pool(
    images: Float[Array, "samples channels height width"],
) -> Float[Array, "samples channels half_height half_width"]:
    """The largest entry of each window of 2 x 2."""
    samples, channels, height, width = images.shape
    windows = images.reshape(samples, channels, height // 2, 2, width // 2, 2)
    return jnp.max(windows, axis=(3, 5))
