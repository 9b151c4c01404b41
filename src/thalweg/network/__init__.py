"""How the map is parametrised: linear, homogeneous and shared-weight networks, or any model.

One module per family; weights are a plain tuple of arrays, first layer first.
"""

from thalweg.network.architectures import max_pooling_network as max_pooling_network
from thalweg.network.architectures import strided_network as strided_network
from thalweg.network.base import AbstractNetwork as AbstractNetwork
from thalweg.network.homogeneous import HomogeneousNetwork as HomogeneousNetwork
from thalweg.network.linear import LinearNetwork as LinearNetwork
from thalweg.network.model import Model as Model
from thalweg.network.shared import AbstractLayer as AbstractLayer
from thalweg.network.shared import Convolution as Convolution
from thalweg.network.shared import Dense as Dense
from thalweg.network.shared import SharedNetwork as SharedNetwork
from thalweg.network.shared import Tied as Tied
