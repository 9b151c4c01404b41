"""The pages of the reference: each public name with its signature, its docstring and an example.

The examples stand in docs/reference/, a page for each module and a heading for one name or several:

    ## tube, tube_along
    ```pycon
    >>> tube = tw.tube(run)
    ```

Everything else is read from the code. The tests run the examples, and hold the headings against `__all__`.
"""

import ast
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

PAGES = Path(__file__).parents[1] / "reference"
_HEADING = re.compile(r"^## (.+)\n", re.M)
_SPECIAL = re.compile(r"([\\<>*_$\[\]])")


def modules() -> dict[str, ModuleType]:
    """The module of each page, by the page's name: those that `thalweg.__all__` names, and phases."""
    import thalweg
    from thalweg import phases

    named = {name: getattr(thalweg, name) for name in thalweg.__all__}
    found = {name: each for name, each in named.items() if inspect.ismodule(each)}
    return {"top": thalweg, **found, "phases": phases}


def public(module: ModuleType) -> list[str]:
    """The names of a page: `__all__`, without the modules that have pages of their own."""
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]


def sections(text: str) -> dict[tuple[str, ...], str]:
    """The examples of a page by the names that they are of."""
    _, *rest = _HEADING.split(text)
    return {
        tuple(heading.split(", ")): body.strip()
        for heading, body in zip(rest[::2], rest[1::2], strict=True)
    }


def write(source: Path) -> None:
    """Write all pages."""
    folder = source / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.md").write_text((PAGES / "index.md").read_text("utf-8"), "utf-8")
    for name, module in modules().items():
        text = (PAGES / f"{name}.md").read_text("utf-8")
        (folder / f"{name}.md").write_text(_page(module, text), "utf-8")


def _page(module: ModuleType, text: str) -> str:
    lines = [_HEADING.split(text)[0].strip(), ""]
    told = sections(text)
    bare = {(name,): "" for name in public(module) if not any(name in names for names in told)}
    for names, example in (told | bare).items():
        lines += [f"## {', '.join(names)}", ""]
        for name in names:
            lines += [_entry(module, name), ""]
        lines += [example, ""]
    return "\n".join(lines)


def _entry(module: ModuleType, name: str) -> str:
    thing = getattr(module, name)
    place = f"{module.__name__}.{name}"
    # A name of the first page is indexed where its own module has it.
    option = ":no-index:\n" if module.__name__ == "thalweg" and not _only_there(name) else ""
    if inspect.isclass(thing):
        kind, head = "class", f"{place}{_arguments(thing)}\n{option}"
    elif inspect.isroutine(thing):
        kind, head = "function", f"{place}{_arguments(thing)}\n{option}"
    else:
        return f"```{{py:data}} {place}\n{_value(thing)}\n```"
    body = described(inspect.getdoc(thing) or "")
    if kind == "class":
        body += "".join(_member(thing, each) for each in _members(thing))
    return f"`````{{py:{kind}}} {head}\n{body}\n`````"


def _only_there(name: str) -> bool:
    return not any(name in each.__all__ for page, each in modules().items() if page != "top")


def _value(thing: Any) -> str:
    shown = repr(thing) if isinstance(thing, (int, float, str)) else f"a {type(thing).__name__}"
    return f"{shown}" if len(shown) < 80 else ""


# --- signatures, as they were written --------------------------------------------------------------


@cache
def _definition(thing: Any) -> ast.AST | None:
    try:
        text = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
        return ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _arguments(thing: Any) -> str:
    if inspect.isclass(thing):
        return _constructor(thing)
    node = _definition(thing)
    if not isinstance(node, ast.FunctionDef):
        return "(...)"
    result = f" -> {_short(node.returns)}" if node.returns else ""
    return f"({_listed(node.args)}){result}"


def _listed(arguments: ast.arguments) -> str:
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        each.annotation = ast.Name(_short(each.annotation)) if each.annotation else None
    return ast.unparse(arguments)


def _short(annotation: ast.expr) -> str:
    """An annotation without the shapes of its arrays, which the text below names."""
    text = ast.unparse(annotation)
    text = re.sub(r"\b(?:Float|Int|Bool|Real|Num)\[(?:\w+\.)?(\w+), '[^']*'\]", r"\1", text)
    return re.sub(r"\b(?:np|jnp|jax|xr|ct|typing)\.", "", text).replace("'", "")


def _constructor(thing: type) -> str:
    made = vars(thing).get("__init__")
    node = _definition(made) if inspect.isfunction(made) else None
    if isinstance(node, ast.FunctionDef) and "dataclass" not in str(made):
        shown = _listed(node.args)
        return f"({shown.removeprefix('self').lstrip(', ')})"
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    return f"({', '.join(each.name for each in parameters)})" if len(parameters) < 12 else "(...)"


# --- text ------------------------------------------------------------------------------------------


def _members(thing: type) -> list[str]:
    """Its methods and properties with a docstring, those of its own first."""
    found: list[str] = []
    for owner in thing.__mro__:
        if owner.__module__.startswith("thalweg"):
            found += [name for name, each in vars(owner).items() if _told(each) and name[0] != "_"]
    return list(dict.fromkeys(found))


def _told(each: Any) -> bool:
    is_member = isinstance(each, (property, classmethod, staticmethod)) or inspect.isfunction(each)
    return is_member and bool(inspect.getdoc(each))


def _member(thing: type, name: str) -> str:
    found = inspect.getattr_static(thing, name)
    first = (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")
    called = "" if isinstance(found, property) else "()"
    return f"\n\n`{name}{called}`\n: {escaped(first)}"


def escaped(text: str) -> str:
    """Plain text as Markdown, with what stands in backquotes as code."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(each if each.startswith("`") else _SPECIAL.sub(r"\\\1", each) for each in pieces)


def described(docstring: str) -> str:
    """A docstring as Markdown: its formulas are indented, and stay as they are."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        if paragraph.startswith("    ") or ">>>" in paragraph:
            lines += ["```text", textwrap.dedent(paragraph), "```", ""]
        elif match := re.match(r"(Args|Returns|Raises|Attributes):\n", paragraph):
            lines += [f"**{match[1]}**", "", _fields(paragraph[match.end() :]), ""]
        else:
            lines += [escaped(paragraph), ""]
    return "\n".join(lines).strip()


def _fields(text: str) -> str:
    shown = []
    for each in re.split(r"\n(?=\S)", textwrap.dedent(text)):
        name, _, told = each.partition(":")
        if told:
            shown.append(f"- `{name.strip()}`: {escaped(' '.join(told.split()))}")
        else:
            shown.append(escaped(" ".join(each.split())))
    return "\n".join(shown)
