"""Statements that can be checked, one class each, in packages by subject.

* `landscape`: how the loss curves: bounds on the smallest Hessian eigenvalue, saddles
* `sharpness`: how flat the minimisers of a deep linear regression can be
* `balance`: nearly balanced layers, their products, and what moves a product
* `convergence`: descent on a deep linear network at a linear rate, and where it fails
* `one_output`: networks with one output on white inputs, stage by stage
* `small_starts`: deep linear regression from near zero: the flow and its limit
* `residual_starts`: deep linear regression from near the identity, fixed or random
* `finite_steps`: exact laws of descent itself, where it follows no flow
* `discretisation`: descent as a numerical solution of its flow: how far they are apart
* `probability`: Gaussian products and starts, and how likely they are good ones
* `settings`: what the theorems of a subject assume, and what a case is in their terms

Theorems go by subject, because they outlive their papers; `papers` lists them by paper, and
`registry` finds them by id: `registry["arora2019:thm1"]`. What a claim and a certificate are says
`thalweg.certificates`.
"""

from typing import TYPE_CHECKING

from thalweg._later import later

__all__ = [
    "STATEMENTS",
    "certify",
    "certify_case",
    "registry",
]


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from thalweg.theorems.certifying import certify, certify_case
    from thalweg.theorems.papers import STATEMENTS, registry
else:  # so that the list of statements is there without what they are about
    __getattr__ = later(
        __name__,
        {
            "STATEMENTS": "papers",
            "certify": "certifying",
            "certify_case": "certifying",
            "registry": "papers",
        },
    )
