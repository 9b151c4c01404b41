"""Write docs/quantities.md: every quantity of the registry, with its symbol and its formula.

Run by `make docs`; a test holds the page against what this writes.
"""

from pathlib import Path

from thalweg.quantities import QUANTITIES, Quantity
from thalweg.quantities.registry import registered

PAGE = Path(__file__).parent / "quantities.md"

_HEAD = """# Quantities

Written by `make docs` from the registry `thalweg.quantities.QUANTITIES`, which says how each variable
of a dataset is measured, stored, drawn and explained. [conventions.md](conventions.md) has the
symbols, [extending.md](extending.md#a-quantity) shows how to register a quantity of one's own.

A function of the weights is there four times: under its name along descent, with `flow_` in front of
it along the gradient flow, with `initial_` before the first step and with `final_` after the last.
The table leaves out these variants. All quantities are pure numbers: weights have no units.

| name | symbol | formula | what it is |
|---|---|---|---|
"""


def page() -> str:
    """The page as the registry has it now."""
    own = {each.name for each in registered()}  # by whoever runs this, not by the package
    shown = (q for q in QUANTITIES.values() if _source(q).name not in own and _source(q) is q)
    return _HEAD + "\n".join(map(_row, shown)) + "\n"


def _source(quantity: Quantity) -> Quantity:
    """What a quantity is a variant of; itself if it is none."""
    base = QUANTITIES.get(quantity.name.partition("_")[2])
    if base is None or not quantity.long_name.startswith(f"{base.long_name}, "):
        return quantity
    return base


def _row(quantity: Quantity) -> str:
    formula = f"`{quantity.formula}`" if quantity.formula else ""
    flags = "; ".join(f"{value}: {meaning}" for value, meaning in quantity.flags.items())
    said = "; ".join(filter(None, (quantity.long_name, quantity.comment, flags)))
    cells = (f"`{quantity.name}`", _symbol(quantity.symbol), formula, said)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _symbol(mathtext: str) -> str:
    """One formula of mathtext's parts; bars by name, because a table has bars of its own."""
    parts = [part.strip() for part in mathtext.split("$")]  # words and formulas take turns
    words = [rf"\text{{{part}}}" if part and not n % 2 else part for n, part in enumerate(parts)]
    inside = " ".join(filter(None, words)).replace("|", r"\vert ").strip()
    return f"${inside}$" if inside else ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
