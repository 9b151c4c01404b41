"""The statements of elkabetz2021, in the order of the paper."""

from thalweg.theorems.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
