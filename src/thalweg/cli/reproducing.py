"""The command that reproduces a paper's figures, with a verdict per finding."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from thalweg._errors import InputError
from thalweg.cli.base import AsJson, app, err, out, print_rows, progress_bars, say


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help='Which studies, or "all"; without any, the list of them.'),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything (default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="As in the papers.")] = False,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="Do it otherwise, e.g. as the authors' code does; the list names what there is, "
            "and several may be given.",
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where results go.")] = Path(
        "thalweg-studies"
    ),
    pages: Annotated[
        Path | None,
        typer.Option(
            help="Also copy the page and its pictures into this folder; earlier ones of the same "
            "study, size and variants are replaced.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Replace results that are there, finished or not.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce figures of the papers: data, pictures, and a verdict per finding."""
    from thalweg import studies

    if quick and full:
        raise InputError("Either `--quick` or `--full` can be given, not both.")
    if not names:
        _list_studies(as_json)
        return
    size = studies.Size.FULL if full else studies.Size.QUICK
    wanted = studies.find(names)
    chosen = tuple(variants or ())
    for study in wanted:  # what is wrong with the last one is told before the first
        study.chosen(size, chosen)
        if pages is not None:
            studies.require_pages(pages, studies.label_of(study, size, chosen))
    outcomes = []
    for study in _possible(wanted, names):
        outcomes.append(_conducted(study, size, folder, chosen, fresh))
        if pages is not None:
            _tell_replaced(studies.publish(outcomes[-1], pages))
        if not as_json:
            tell_study(outcomes[-1], False)
    if as_json:
        _print_json(outcomes)
    failed = [outcome.label for outcome in outcomes if not outcome.confirmed]
    if failed:
        err.print(f"not confirmed: {', '.join(failed)}", highlight=False)
        raise typer.Exit(1)


def _possible(wanted: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The studies whose data are there; others are skipped, unless they were asked for by name."""
    from thalweg import studies

    possible = []
    for study in wanted:
        missing = studies.missing_data(study)
        if missing is None:
            possible.append(study)
        elif study.name in names:
            raise InputError(f"{study.name} cannot be done: {missing}")
        else:
            err.print(f"skipped {study.name}: {missing}", highlight=False, soft_wrap=True)
    return possible


def _conducted(study: Any, size: Any, folder: Path, variants: tuple[str, ...], fresh: bool) -> Any:
    from thalweg import studies

    if not fresh and studies.is_finished(study, size, folder, variants):
        say(f"{study.name} is done: shown, not repeated; `--fresh` runs it again")
    with progress_bars(study.name) as update:
        return studies.conduct(
            study,
            size,
            folder,
            lambda _, share: update(study.name, share),
            variants,
            fresh=fresh,
        )


def _tell_replaced(files: Sequence[Path]) -> None:
    if files:
        say(f"replaced, being others before: {', '.join(map(str, files))}")


def _print_json(outcomes: Sequence[Any]) -> None:
    findings = {each.label: [one.to_dict() for one in each.findings] for each in outcomes}
    print(json.dumps(findings, indent=1))


def tell_study(outcome: Any, as_json: bool) -> None:
    """Say what a study has found."""
    if as_json:
        _print_json([outcome])
        return
    rows = [each.row() for each in outcome.findings]
    print_rows(f"{outcome.label}: {outcome.study.title}", rows)
    out.print(f"{outcome.seconds:.0f} s, in {outcome.folder}", highlight=False)


def _list_studies(as_json: bool) -> None:
    from thalweg import studies

    rows = [
        {
            "study": study.name,
            "figures": ", ".join(study.figures) or "-",
            "shows": study.title,
            "variants": ", ".join(study.variants) or "-",
        }
        for study in studies.find(["all"])
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    from thalweg.cli import terminal

    terminal.one_line_each(out, [(row["study"], _shows(row)) for row in rows])
    out.print("`thalweg reproduce STUDY` runs one, `--variant` does it otherwise.", highlight=False)


def _shows(row: dict[str, str]) -> str:
    """What a study shows, with the figures that it redoes and its variants, where it has some."""
    figures = "" if row["figures"] == "-" else f" (fig. {row['figures']})"
    variants = "" if row["variants"] == "-" else f"; --variant {row['variants']}"
    return f"{row['shows']}{figures}{variants}"
