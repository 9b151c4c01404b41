"""The statements of marion2024, in the order of the paper."""

from thalweg.theorems.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
