"""One module per paper, a package where the paper is long: what each of its statements became.

`thalweg` has those that stand in no paper.
"""

from typing import Any

from thalweg.theorems.papers import arora2019, elkabetz2021, marion2024, thalweg

STATEMENTS = (
    *arora2019.STATEMENTS,
    *elkabetz2021.STATEMENTS,
    *marion2024.STATEMENTS,
    *thalweg.STATEMENTS,
)

registry: dict[str, Any] = {statement.id: statement.code for statement in STATEMENTS}
"""What each statement became: a theorem class, a function, or an initialisation."""
