"""What can be changed in a source file, one expression at a time: see `sample`."""

import ast
import copy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
}
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_PAIRS = "min max|minimum maximum|argmin argmax|floor ceil|any all|nanmin nanmax|sin cos|zeros ones"
NAMES = {a: b for pair in _PAIRS.split("|") for a, b in (pair.split(), reversed(pair.split()))}
_FIRST = (
    "abs",
    "sqrt",
    "exp",
    "log",
    "log1p",
    "expm1",
    "square",
    "clip",
    "sort",
    "sorted",
    "reversed",
    "norm",
)
# Calls that give one of their arguments back, or much the same: which arguments can stand for them.
GIVEN_BACK = {
    **{name: (0,) for name in _FIRST},
    **{name: (0, 1) for name in ("min", "max", "minimum", "maximum")},
    "where": (1, 2),
}
SHOWN = {"__repr__", "__str__", "__rich__", "__tree_pp__", "describe", "title", "label"}


def mutants_of(path: Path) -> list[dict[str, Any]]:
    """Every mutant of a file: where, what becomes what, and in which function."""
    source = path.read_text()
    visitor = Candidates()
    visitor.visit(ast.parse(source))
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    found, raw = [], source.encode()
    for node, changed, kind, scope in visitor.found:
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = ast.unparse(ast.fix_missing_locations(changed))
        whole = text if isinstance(node, ast.AugAssign | ast.Constant) else f"({text})"
        before = raw[begin:end].decode()
        found.append(
            {
                "file": str(path.relative_to(ROOT)),
                "scope": scope,
                "line": node.lineno,
                "kind": kind,
                "before": before,
                "after": whole,
                "text": lines[node.lineno - 1].strip(),
                "begin": begin,
                "end": end,
            }
        )
    return found


def applied(mutant: dict[str, Any]) -> str | None:
    """The source with the fault in it; None where that code is no longer there."""
    path = ROOT / mutant["file"]
    keys = ("scope", "kind", "before", "after", "text")
    same = [m for m in mutants_of(path) if all(m[key] == mutant[key] for key in keys)]
    if not same:
        return None
    place = min(same, key=lambda m: abs(m["begin"] - mutant["begin"]))
    raw = path.read_bytes()
    return (raw[: place["begin"]] + place["after"].encode() + raw[place["end"] :]).decode()


class Candidates(ast.NodeVisitor):
    """Collects (node, replacement, kind, name of the function) for every change a module offers."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, ast.AST, str, str]] = []
        self.scope: list[str] = []

    def add(self, node: ast.AST, changed: ast.AST, kind: str) -> None:
        self.found.append((node, changed, kind, ".".join(self.scope)))

    def within(self, node: Any, *parts: Any) -> None:
        self.scope.append(node.name)
        for part in parts:
            self.visit(part)
        self.scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in SHOWN:
            defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            self.within(node, *defaults, *node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.within(node, *node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message is told, not computed."""

    visit_JoinedStr = visit_Import = visit_ImportFrom = visit_Assert = visit_Raise

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if any(_is_text(side) for side in (node.left, node.right)):
            return
        if type(node.op) in BINARY:
            self.add(node, _with(node, op=BINARY[type(node.op)]()), "operator")
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            self.add(node, node.left, "term dropped")
        if isinstance(node.op, ast.Add | ast.Mult):
            self.add(node, node.right, "term dropped")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if type(node.op) in BINARY and not isinstance(node.value, ast.List | ast.Tuple):
            self.add(node, _with(node, op=BINARY[type(node.op)]()), "operator")

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                self.add(node, _with(node, ops=ops), "comparison")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, _with(node, op=other), "and, or")
        for place in range(len(node.values)):
            rest = node.values[:place] + node.values[place + 1 :]
            kept = rest[0] if len(rest) == 1 else _with(node, values=rest)
            self.add(node, kept, "condition dropped")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            self.add(node, ast.Constant(0 if node.operand.value == 1 else 1), "constant")
        else:
            self.generic_visit(node)
        if isinstance(node.op, ast.USub | ast.Not):
            self.add(node, node.operand, "sign dropped")

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if isinstance(value, int):
            others: tuple[Any, ...] = {0: (1,), 1: (0, 2), 2: (1, 3)}.get(value, (value + 1,))
        else:
            others = {0.0: (1.0,), 1.0: (2.0, 0.5), 0.5: (1.0,)}.get(value, (2 * value,))
        for other in others:
            self.add(node, ast.Constant(other), "constant")

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = _called(node)
        if name in NAMES:
            self.add(node, _with(node, func=_renamed(node.func, NAMES[name])), "min, max")
        for place in GIVEN_BACK.get(name, ()):
            two = len(node.args) > 1 or name not in ("min", "max")
            if two and place < len(node.args) and not isinstance(node.args[place], ast.Starred):
                self.add(node, node.args[place], "call dropped")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.generic_visit(node)
        self.add(node, node.body, "condition dropped")
        self.add(node, node.orelse, "condition dropped")


def _with(node: ast.AST, **fields: Any) -> Any:
    changed = copy.copy(node)
    for field, value in fields.items():
        setattr(changed, field, value)
    return changed


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _called(node: ast.Call) -> str:
    function = node.func
    return getattr(function, "attr", getattr(function, "id", ""))


def _renamed(function: ast.expr, name: str) -> ast.expr:
    return _with(function, **{"attr" if isinstance(function, ast.Attribute) else "id": name})
