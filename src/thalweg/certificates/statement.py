"""What the package knows of a statement of a paper: its meaning, its code, how loose it was."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Statement:
    """One statement, under the name of its paper.

    Args:
        id: the paper's key and the statement's name, "arora2019:thm1".
        meaning: what it says, in one plain sentence.
        code: the theorem class, the function or the start that it became.
        looseness: how far the bound was from the fact, as measured in the tests.
        ours: whether it is derived here and stands in no paper.
    """

    id: str
    meaning: str
    code: Any
    looseness: str = ""
    ours: bool = False

    @property
    def paper(self) -> str:
        """The key of the paper."""
        return self.id.split(":")[0]

    @property
    def where(self) -> str:
        """Where the code is, as one would import it."""
        return f"{self.code.__module__}.{self.code.__qualname__}"
