"""Symmetric operators seen through their products with vectors: Krylov spaces and what they tell.

Two ways to span such a space, because two things can be short:

* `lanes`: Lanczos's three-term recursion, which keeps two vectors. JAX traces it, for one operator
  or for many side by side; `ritz` has the ends of their projections, with residuals.
* `space`: an orthonormal basis that is kept and may grow by any direction. It runs on the host, so
  products may come from anywhere; `extremes` searches the ends of the spectrum with it.

Both project the operator, and both say how far off a value may be by residuals, never by trust.
"""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
