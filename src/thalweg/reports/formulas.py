"""Formulas that were written for a terminal, set for a page: Greek letters, powers and indices.

The labels of claims are plain text, such as `|W|_F^2 <= e^(a t)`. Here they become HTML; words
between them stay words.
"""

# ruff: noqa: RUF001 (Greek letters and signs are what this is about)

import re

from markupsafe import Markup, escape

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eps": "ε", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "chi": "χ", "chi2": "χ²", "psi": "ψ", "omega": "ω", "Gamma": "Γ",
    "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
    "sum": "∑", "prod": "∏", "integral": "∫", "grad": "∇", "inf": "inf",
}  # fmt: skip
_SIGNS = {"&lt;=": "≤", "&gt;=": "≥", "-&gt;": "→", "...": "…"}

_NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?)0*(\d+)(?!\w)")
_SCRIPT = re.compile(r"([_^])(\{[^{}]*\}|\([^()]*\)|-?\w+(?:\.\d+)?)")
_NAME = re.compile(r"(?<![A-Za-z&<;])([A-Za-z]+\d?)(?![A-Za-z;])")
_ROOT = re.compile(r"\bsqrt\(([^()]*)\)")
_MINUS = re.compile(r"(?<=[\s({|,])-(?=[\s\w(|√])|^-(?=[\w(|√])")


def formula(text: str) -> Markup:
    """A label as HTML, in which everything else is escaped."""
    set_ = str(escape(text))
    set_ = _NUMBER.sub(_power_of_ten, set_)
    for sign, shown in _SIGNS.items():
        set_ = set_.replace(sign, shown)
    set_ = _ROOT.sub(r"√(\1)", set_)
    for _ in range(2):  # a power of an index, or an index of a power
        set_ = _SCRIPT.sub(_script, set_)
    return Markup(_NAME.sub(_name, _MINUS.sub("−", set_)))


def _power_of_ten(found: re.Match[str]) -> str:
    digits, sign, power = found.groups()
    tens = f"10<sup>{'−' if sign == '-' else ''}{power}</sup>"
    return tens if digits == "1" else f"{digits}·{tens}"


def _script(found: re.Match[str]) -> str:
    kind, body = found.groups()
    tag = "sub" if kind == "_" else "sup"
    bare = body[1:-1] if body[0] in "({" else body
    return f"<{tag}>{bare.replace('-', '−')}</{tag}>"


def _name(found: re.Match[str]) -> str:
    """A Greek letter, a variable, or a word as it is."""
    word = found.group(1)
    if word in _GREEK:
        return _GREEK[word]
    after = found.string[found.end() : found.end() + 3]
    before = found.string[max(0, found.start() - 3) : found.start()]
    article = word == "a" and re.match(r" [a-z]{2}", after) and not before.endswith(("≤ ", "^ "))
    return f"<i>{word}</i>" if len(word) == 1 and not article else word
