"""Small changes of the product, one at a time: which there are, and a copy of the project with one of them.

A copy has its own file that is changed, beside links to everything else, so that several may run at a time.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.processes import ROOT

_OTHER: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}


class Mutant(NamedTuple):
    """A change of one file: the bytes [begin, end) become `new`."""

    path: str
    name: str
    begin: int
    end: int
    new: bytes


def line_of(mutant: Mutant) -> str:
    """The line in which a change begins, without its indentation."""
    source = (ROOT / mutant.path).read_bytes()
    first, last = source.rfind(b"\n", 0, mutant.begin) + 1, source.find(b"\n", mutant.begin)
    return source[first:last].decode().strip()


def mutants_of(room: str) -> Iterator[Mutant]:
    """Every change of the modules in a folder and those below it."""
    for path in sorted((ROOT / room).rglob("*.py")):
        yield from mutants_in(path.relative_to(ROOT).as_posix(), path.read_bytes())


def mutants_in(path: str, source: bytes) -> Iterator[Mutant]:
    """Every change of one module, named by function, what becomes what, and which one it is there."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[str] = Counter()
    for where, node in _in_functions(ast.parse(source), ""):
        for (begin_line, begin), (end_line, end), old, new in _changes(node):
            first, last = starts[begin_line - 1] + begin, starts[end_line - 1] + end
            if old:
                at = source.find(old.encode(), first, last)
                # a bracket or a comment between the operands may hold it too
                if at < 0 or source[first:last].strip() != old.encode():
                    continue
                first, last = at, at + len(old)
            shown = source[first:last].split(b"\n")[0].decode()
            name = f"{path} {where}: {shown!r} -> {new!r}"
            seen[name] += 1
            yield Mutant(path, f"{name} #{seen[name]}", first, last, new.encode())


def _in_functions(tree: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    """What is done in functions, each with their names; no annotations, defaults and decorators."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{where}.{child.name}".lstrip(".")
            for statement in child.body:
                yield from _in_functions(ast.Module([statement], []), name)
        elif not isinstance(child, ast.JoinedStr | ast.arguments):
            if where:
                yield where, child
            if isinstance(child, ast.AnnAssign):
                child = ast.Expr(child.value) if child.value is not None else ast.Pass()  # noqa: PLW2901
            yield from _in_functions(child, where)


_Place = tuple[int, int]


def _changes(node: ast.AST) -> Iterator[tuple[_Place, _Place, str, str]]:
    """Places from and to, what must stand there alone ("": whatever does), and what is put there."""
    if isinstance(node, ast.Compare):
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            yield _behind(left), _before(right), *_OTHER[type(operator)]
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield _behind(left), _before(right), *_OTHER[type(node.op)]
    elif isinstance(node, ast.BinOp) and type(node.op) in _OTHER:
        yield _behind(node.left), _before(node.right), *_OTHER[type(node.op)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _before(node), _before(node.operand), "not", ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield _before(node), _behind(node), "", str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield _before(node), _behind(node), "", "pass"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reversed":
        yield _before(node.func), _behind(node.func), "reversed", "list"


def _before(node: ast.expr | ast.stmt) -> _Place:
    return node.lineno, node.col_offset


def _behind(node: ast.expr | ast.stmt) -> _Place:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def build(mutant: Mutant, folder: Path) -> None:
    """The whole project below `folder`, changed: links to it, but for the file and the folders above it."""
    # what a failing example leaves behind is of no use to anybody else
    _link_all(ROOT, folder, {mutant.path.partition("/")[0], ".venv", ".hypothesis"})
    above = ROOT
    for name in Path(mutant.path).parent.parts:
        above = above / name
        inside = folder / above.relative_to(ROOT)
        inside.mkdir()
        following = Path(mutant.path).relative_to(above.relative_to(ROOT)).parts[0]
        _link_all(above, inside, {following})
    source = (ROOT / mutant.path).read_bytes()
    (folder / mutant.path).write_bytes(source[: mutant.begin] + mutant.new + source[mutant.end :])


def _link_all(source: Path, target: Path, but: set[str]) -> None:
    for path in source.iterdir():
        if path.name not in {*but, "__pycache__"}:
            (target / path.name).symlink_to(path)
