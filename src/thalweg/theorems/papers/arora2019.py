"""The statements of arora2019, in the order of the paper."""

from thalweg.theorems.statement import Statement

STATEMENTS: tuple[Statement, ...] = ()
