"""Random values that programs are seldom given: the alphabet of all generators.

Sizes are either tiny, so that what is accepted is done at once and with code that is compiled
already, or enormous, so that it must be refused.
"""

import random
from typing import Any

Rng = random.Random

WHOLE = (0, -1, -7, 10**9, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400)
REAL = (
    0.0, -0.0, -1.0, 5e-324, 1e-320, 1e-300, 1e-16, 1e-9, 1e-3, 0.1, 0.5, 1.0, 2.0, 16.0, 1e9,
    1e154, 1e200, 1e300, 1.7976931348623157e308, -1e300, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
WORDS = (
    "", " ", "nan", "inf", "None", "true", "-1", "1e400", "0x10", "gaussian", "auto", "linear",
    "[bold]x[/bold]", "[/]", "[red", "%s%n", "{0}", "{x!r}", "a\tb", "a\nb",
    "\u00e9\u4e2d\U0001f600", "\u202eabc", "\x1b[31mred", "';--", "../..", ".", "..", "~",
    "a" * 300, "\u00e9" * 200, "CON", "-", "--", "--json", "*", "a b", "'", '"', "\\",
    "`x`", "\ud7ff", "\ufffe",
)  # fmt: skip
"""Texts with a meaning for somebody: shells, formats, terminals, disks."""


def chance(rng: Rng, share: float) -> bool:
    """True in this share of the cases."""
    return rng.random() < share


def whole(rng: Rng) -> int:
    """A whole number: tiny, or one that nobody can mean."""
    return rng.choice(WHOLE) if chance(rng, 0.6) else rng.choice((1, 2, 2, 2, 3))


def real(rng: Rng) -> float:
    """A real number of any size and kind."""
    if chance(rng, 0.6):
        return rng.choice(REAL)
    return rng.choice((-1, 1, 1, 1)) * 10 ** rng.uniform(-3, 1)


def letters(rng: Rng, most: int = 12) -> str:
    """A word of any characters but those that no file can hold."""
    pool = "abcxyz._-/[]{}=\"'#,: \\\u00e9\u4e2d\U0001f600\u0000\n\t0123456789"
    # Never an absolute path, which somebody might write to.
    return "".join(rng.choice(pool) for _ in range(rng.randint(0, most))).lstrip("/")


def word(rng: Rng) -> str:
    """A text: one with a meaning, any, or one without an end."""
    roll = rng.random()
    if roll < 0.6:
        return rng.choice(WORDS)
    return letters(rng) if roll < 0.95 else rng.choice("ab\u00e9") * rng.choice((255, 5000, 10**5))


def scalar(rng: Rng) -> Any:
    """Any value without parts."""
    return rng.choice((whole, real, word, lambda _: chance(rng, 0.5)))(rng)


def tree(rng: Rng, depth: int = 3) -> Any:
    """Any value that a TOML or JSON file can hold, None aside."""
    roll = rng.random()
    if depth == 0 or roll < 0.5:
        return scalar(rng)
    if roll < 0.75:
        return [tree(rng, depth - 1) for _ in range(rng.choice((0, 1, 2, 2, 3, 30)))]
    return {word(rng)[:300]: tree(rng, depth - 1) for _ in range(rng.choice((0, 1, 2, 3)))}


def damaged(rng: Rng, raw: bytes) -> bytes:
    """The same bytes, cut, doubled, overwritten or mixed with others."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        length = rng.choice((1, 1, 2, 10, 100))
        match rng.randrange(6):
            case 0:
                del data[place:]
            case 1:
                del data[place : place + length]
            case 2:
                data[place : place + length] = rng.randbytes(length)
            case 3:
                data[place:place] = data[place : place + length] * rng.choice((1, 3))
            case 4:
                data[place:place] = rng.choice(WORDS).encode("utf-8", "replace")
            case _:
                data[place : place + 1] = rng.choice(
                    (b"\x00", b"\xff", b"[", b"]", b'"', b"=", b"\n")
                )
    return bytes(data)
