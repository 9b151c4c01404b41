"""How the map is parametrised: linear, homogeneous and shared-weight networks, or any model.

One module per family; weights are a plain tuple of arrays, first layer first.
"""

from thalweg.network.base import AbstractNetwork as AbstractNetwork
from thalweg.network.homogeneous import HomogeneousNetwork as HomogeneousNetwork
from thalweg.network.linear import LinearNetwork as LinearNetwork
from thalweg.network.model import Model as Model
