"""Array aliases that every module shares."""

from typing import Annotated, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Array, Float

from thalweg._kinds import MANY, TREE

Scalar: TypeAlias = Float[Array, ""]
Matrix: TypeAlias = Float[Array, "rows columns"]
Weights: TypeAlias = tuple[Float[Array | np.ndarray, "..."], ...]
"""A network's trained arrays, first layer first: a plain tuple, hence a pytree. Recorded weights
are NumPy arrays and may be given wherever weights are."""

ManyWeights: TypeAlias = Annotated[Weights, MANY]
"""The weights of one network or of several."""

AnyWeights: TypeAlias = Annotated[Any, TREE]
"""The weights of any objective: a pytree of floating arrays, as that objective takes it."""

ManyAnyWeights: TypeAlias = Annotated[Any, TREE, MANY]
"""The same, of one network or of several."""


@runtime_checkable
class Run(Protocol):
    """What has recorded weights at some times: a `Descent` or a `Flow`."""

    @property
    def weights(self) -> Any:
        """The weights at the recorded times."""
        ...

    @property
    def times(self) -> Any:
        """The recorded times."""
        ...
