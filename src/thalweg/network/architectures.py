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

from thalweg.network.biased import BiasedNetwork
from thalweg.network.layered import LayeredNetwork, SharedNetwork
from thalweg.network.layers import Convolution, Dense

_FIRST = Convolution(1, 6, kernel=5, image=28, padding=2)
_SECOND = Convolution(6, 16, kernel=5, image=14)
_DENSE = (Dense(400, 120), Dense(120, 84), Dense(84, 10))


def max_pooling_network() -> BiasedNetwork:
    """The network with max pooling and biases.

    The weights are each layer's array followed by its bias: convolutions (6, 1, 5, 5), (6,),
    (16, 6, 5, 5), (16,), then matrices (120, 400), (120,), (84, 120), (84,), (10, 84), (10,);
    `weights[::2]` leaves the biases out.
    """
    return BiasedNetwork([_FIRST, _SECOND, *_DENSE], pooling=(2, 2))


def strided_network() -> LayeredNetwork:
    """The network with stride 2 instead of pooling, and no biases.

    The weights are convolutions (6, 1, 5, 5), (16, 6, 5, 5), then matrices (120, 400), (84, 120),
    (10, 84).
    """
    first = Convolution(1, 6, kernel=5, image=28, stride=2, padding=2)
    second = Convolution(6, 16, kernel=5, image=14, stride=2)
    return SharedNetwork([first, second, *_DENSE])
