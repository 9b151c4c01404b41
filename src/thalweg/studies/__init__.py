"""Reproduced figures of the papers, and studies of our own, each with findings that are checked.

`STUDIES` names them all. A study's module is imported only when it is asked for.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module

from thalweg import data
from thalweg._checks import InputError
from thalweg.studies.begun import begun_in
from thalweg.studies.conducting import Outcome, conduct, is_finished, label_of, recalled
from thalweg.studies.publishing import publish, require_pages
from thalweg.studies.study import AbstractStudy, Finding, Size, Variant

__all__ = [
    "STUDIES",
    "AbstractStudy",
    "Finding",
    "Outcome",
    "Size",
    "Variant",
    "begun_in",
    "conduct",
    "find",
    "is_finished",
    "label_of",
    "missing_data",
    "publish",
    "recalled",
    "register",
    "require_pages",
]


def __dir__() -> list[str]:
    return __all__


STUDIES: dict[str, str | type[AbstractStudy]] = {
    "arora2019-rates": "arora2019_rates:Rates",
    "arora2019-failures": "arora2019_failures:Failures",
    "arora2019-learning-rates": "arora2019_learning_rates:LearningRates",
    "arora2019-success": "arora2019_probability:SuccessProbability",
    "arora2019-joint": "arora2019_probability:JointMap",
    "elkabetz2021-fig1": "elkabetz2021_fig1:Figure1",
    "elkabetz2021-fig2": "elkabetz2021_fig2:Figure2",
    "elkabetz2021-fig3": "elkabetz2021_fig3:Figure3",
    "elkabetz2021-curvature": "elkabetz2021_curvature:Curvature",
    "marion2024-fig1": "marion2024_fig1:GaussianStarts",
    "marion2024-fig1cd": "marion2024_fig1cd:GaussianTraces",
    "marion2024-fig3": "marion2024_fig3:ResidualStarts",
    "marion2024-fig3cd": "marion2024_fig3cd:ResidualTraces",
    "marion2024-depth": "marion2024_depth:CriticalRate",
    "marion2024-underdetermined": "marion2024_underdetermined:Underdetermined",
    "marion2024-gelu": "marion2024_gelu:Gelu",
    "thalweg-steps": "thalweg_steps:StepSizes",
    "thalweg-weight-decay": "thalweg_weight_decay:WeightDecay",
    "thalweg-flatness": "thalweg_flatness:Flatness",
    "thalweg-modified-flow": "thalweg_modified_flow:ModifiedFlow",
    "thalweg-critical": "thalweg_critical:CriticalOverDepth",
    "thalweg-edge": "thalweg_edge:Edge",
}
"""The class of every study, as "module:class" inside this package, or itself if registered."""


def register(study: type[AbstractStudy]) -> type[AbstractStudy]:
    """Let `find`, and so `thalweg reproduce` in this process, know a study of one's own."""
    if study.name in STUDIES:
        raise InputError(f"`name` of a study must be new, got {study.name!r}, which there is.")
    STUDIES[study.name] = study
    return study


def find(names: Iterable[str]) -> list[type[AbstractStudy]]:
    """The studies of these names; all of them for "all"."""
    wanted = list(names)
    everything = list(STUDIES) if "all" in wanted else []
    named = [name for name in wanted if name != "all"]
    return [_load(name) for name in dict.fromkeys([*named, *everything])]


def missing_data(study: type[AbstractStudy]) -> str | None:
    """Why a study cannot be done here for want of data; None where it can."""
    if "mnist" not in study.needs:
        return None
    try:
        data.mnist(images=1)
    except InputError as error:
        return str(error)
    return None


def _load(name: str) -> type[AbstractStudy]:
    if name not in STUDIES:
        nearest = get_close_matches(name, STUDIES, 1, 0.4)
        hint = f"did you mean `{nearest[0]}`?" if nearest else f"known are {', '.join(STUDIES)}."
        raise InputError(f"There is no study `{name}`; {hint}")
    known = STUDIES[name]
    if not isinstance(known, str):
        return known
    module, _, title = known.partition(":")
    return getattr(import_module(f"thalweg.studies.{module}"), title)
