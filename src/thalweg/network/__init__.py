"""How the map is parametrised: linear and layered networks, or any model.

One module per family; weights are a plain tuple of arrays, first layer first.
"""

from thalweg.network.architectures import max_pooling_network, strided_network
from thalweg.network.base import AbstractNetwork
from thalweg.network.biased import BiasedNetwork
from thalweg.network.layered import HomogeneousNetwork, LayeredNetwork, SharedNetwork
from thalweg.network.layers import AbstractLayer, Convolution, Dense, Tied
from thalweg.network.linear import LinearNetwork
from thalweg.network.model import Model

__all__ = [
    "AbstractLayer",
    "AbstractNetwork",
    "BiasedNetwork",
    "Convolution",
    "Dense",
    "HomogeneousNetwork",
    "LayeredNetwork",
    "LinearNetwork",
    "Model",
    "SharedNetwork",
    "Tied",
    "max_pooling_network",
    "strided_network",
]


def __dir__() -> list[str]:
    return __all__
