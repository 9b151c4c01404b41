"""One module per paper, a package where the paper is long: what each of its statements became."""

from thalweg.theorems.papers import arora2019, elkabetz2021, marion2024

STATEMENTS = (*arora2019.STATEMENTS, *elkabetz2021.STATEMENTS, *marion2024.STATEMENTS)
