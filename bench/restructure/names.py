"""Names in a module: what its top level binds, and which nodes of its tree mean something of the top level."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("formats", "store", "network", "pipeline", "rmqctl")
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Used = tuple[ast.AST, str, frozenset[str]]
"""A node, the name of the top level that it means, and the local names around it."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def dotted(path: str) -> str:
    """Return the module name of a path such as store/read/get.py."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"rmqctl.{name}" if name.partition(".")[0] in PACKAGES[:-1] else name


@dataclass(frozen=True)
class Edit:
    """The bytes from `start` to `end` of a source become `text`."""

    start: int
    end: int
    text: str


@dataclass
class Source:
    """A module as it is before."""

    path: str
    raw: bytes
    tree: ast.Module
    starts: list[int]
    renames: dict[str, str] = field(default_factory=dict)
    """Names at the module's top level -> their names in the target."""
    dropped: set[str] = field(default_factory=set)
    """Names whose definition is equal to one of an earlier source."""

    @classmethod
    def read(cls, root: Path, path: str) -> Source:
        raw = (root / path).read_bytes()
        starts = [0]
        for line in raw.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return cls(path, raw, ast.parse(raw), starts)

    @property
    def name(self) -> str:
        return dotted(self.path)

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def begin(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined,no-any-return]

    def end(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined,no-any-return]

    def text(self, node: ast.AST) -> str:
        return self.raw[self.begin(node) : self.end(node)].decode()

    def edit(self, node: ast.AST, text: str) -> Edit:
        return Edit(self.begin(node), self.end(node), text)

    def applied(self, edits: list[Edit]) -> str:
        raw = self.raw
        for edit in sorted(set(edits), key=lambda each: each.start, reverse=True):
            raw = raw[: edit.start] + edit.text.encode() + raw[edit.end :]
        return raw.decode()


def is_type_checking(node: ast.stmt) -> bool:
    """Return whether a statement is `if TYPE_CHECKING:` with nothing but imports."""
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.test, ast.Name):
        return False
    has_imports_alone = all(isinstance(each, ast.ImportFrom | ast.Import) for each in node.body)
    return node.test.id == "TYPE_CHECKING" and has_imports_alone


def bound_by(node: ast.AST) -> list[str]:
    """Return the names that a statement binds where it stands."""
    if isinstance(node, _DEFINITIONS):
        return [node.name]
    if isinstance(node, ast.Import):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
        return _stored(node)
    if isinstance(node, ast.If | ast.Try):
        return [name for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt) for name in bound_by(each)]
    return []


def _stored(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _arguments(function: Function) -> list[ast.arg]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [*every, *(each for each in (given.vararg, given.kwarg) if each)]


def _locals(function: Function) -> set[str]:
    """Return the names that are local to a function, without those of functions inside it."""
    found = {each.arg for each in _arguments(function)}
    outer: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, _DEFINITIONS):
            found.add(node.name)
            return
        elif isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            return
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(bound_by(node))
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in function.body if isinstance(function.body, list) else [function.body]:
        visit(statement)
    found.update(each.target.id for each in ast.walk(function) if isinstance(each, ast.NamedExpr))
    return found - outer


def globals_used(tree: ast.Module) -> Iterator[Used]:
    """Yield each node that means a name of the module's top level, its definitions among them."""
    for statement in tree.body:
        yield from _used(statement, frozenset(), frozenset())


def _used(node: ast.AST, around: frozenset[str], in_class: frozenset[str]) -> Iterator[Used]:
    if isinstance(node, ast.Name):
        if node.id not in around and node.id not in in_class:
            yield node, node.id, around
    elif isinstance(node, ast.Global):
        for name in node.names:
            yield node, name, around
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield from _used_by_function(node, around, in_class)
    elif isinstance(node, _COMPREHENSIONS):
        stored = {name for part in node.generators for name in _stored(part.target)}
        for child in ast.iter_child_nodes(node):
            yield from _used(child, around | stored, in_class)
    elif isinstance(node, ast.ClassDef):
        yield from _used_by_class(node, around, in_class)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _used(child, around, in_class)


def _used_by_function(node: Function, around: frozenset[str], in_class: frozenset[str]) -> Iterator[Used]:
    outside: list[ast.AST] = [*node.args.defaults, *(each for each in node.args.kw_defaults if each)]
    outside += [each.annotation for each in _arguments(node) if each.annotation]
    if not isinstance(node, ast.Lambda):
        outside += [*node.decorator_list, *(each for each in [node.returns] if each)]
        if node.name not in around and node.name not in in_class:
            yield node, node.name, around
    for each in outside:
        yield from _used(each, around, in_class)
    inner = around | _locals(node)
    for each in node.body if isinstance(node.body, list) else [node.body]:
        yield from _used(each, inner, frozenset())


def _used_by_class(node: ast.ClassDef, around: frozenset[str], in_class: frozenset[str]) -> Iterator[Used]:
    if node.name not in around and node.name not in in_class:
        yield node, node.name, around
    for each in (*node.decorator_list, *node.bases, *(word.value for word in node.keywords)):
        yield from _used(each, around, in_class)
    own = frozenset(name for statement in node.body for name in bound_by(statement))
    for statement in node.body:
        yield from _used(statement, around, own)
