"""How the map is parametrised: linear and layered networks, or any model.

One module per family; weights are a plain tuple of arrays, first layer first.
"""

from thalweg.network.architectures import max_pooling_network as max_pooling_network
from thalweg.network.architectures import strided_network as strided_network
from thalweg.network.base import AbstractNetwork as AbstractNetwork
from thalweg.network.layered import HomogeneousNetwork as HomogeneousNetwork
from thalweg.network.layered import LayeredNetwork as LayeredNetwork
from thalweg.network.layered import SharedNetwork as SharedNetwork
from thalweg.network.layers import AbstractLayer as AbstractLayer
from thalweg.network.layers import Convolution as Convolution
from thalweg.network.layers import Dense as Dense
from thalweg.network.layers import Tied as Tied
from thalweg.network.linear import LinearNetwork as LinearNetwork
from thalweg.network.model import Model as Model
