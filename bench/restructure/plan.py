"""Look at a plan before it is carried out: circles between its targets, what its rows (tests/test_tidy.py HOUSE) are.

    python -m bench.restructure.plan PLAN [--rows]

`--rows` takes a minute: modules are lifted out of their folders until no folder needs itself by way of others.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from bench.restructure.names import PACKAGES, dotted

ROOT = Path(__file__).parents[2]
Graph = Mapping[str, Collection[str]]


def targets_of(text: str) -> dict[str, str]:
    """Return each source's path, without `.py`, and its target's."""
    lines = (line.partition(":") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {source: target.strip() for target, _, sources in lines for source in sources.split()}


def imports() -> dict[str, set[str]]:
    """Return what each module of the product imports of it, inside functions and for types too."""
    paths = {
        dotted(str(path.relative_to(ROOT))): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not any(each.is_symlink() for each in path.parents)
    }
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {each if each in paths else node.module for each in inner}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        found[name] = named & paths.keys()
    return found


def merged(graph: Graph, home: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the graph with each node replaced by its home; nodes without one stay."""
    found: dict[str, set[str]] = defaultdict(set)
    for node, needed in graph.items():
        here = home.get(node, node)
        found[here] |= {home.get(each, each) for each in needed} - {here}
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected parts, what a part needs before it; a part of one node is no circle."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for each in graph.get(node, ()):
            if each not in index:
                visit(each)
            if each in stack:
                low[node] = min(low[node], low[each])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def _rows(graph: Graph, packages: Collection[str], lifted: Collection[str]) -> dict[str, set[str]]:
    home = {node: node if node in lifted or node in packages else node.rpartition(".")[0] for node in graph}
    return merged(graph, home)


def _cost(graph: Graph) -> int:
    return sum(len(part) ** 2 for part in circles(graph) if len(part) > 1)


def rows(graph: Graph) -> list[str]:
    """Return folders, and as few modules as have to be lifted out of theirs, from the ground up."""
    packages = {node.rpartition(".")[0] for node in graph}
    lifted: set[str] = set()
    while _cost(current := _rows(graph, packages, lifted)):
        inside = {each for part in circles(current) if len(part) > 1 for each in part}
        free = [each for each in graph if each not in packages | lifted and each.rpartition(".")[0] in inside]
        lifted.add(min(free, key=lambda each: (_cost(_rows(graph, packages, {*lifted, each})), each)))
    for each in sorted(lifted):
        if _cost(_rows(graph, packages, lifted - {each})) == 0:
            lifted.discard(each)
    return [each for part in circles(_rows(graph, packages, lifted)) for each in part]


def _shown(text: str) -> Iterator[str]:
    home = {dotted(source): dotted(target) for source, target in targets_of(text).items()}
    graph = merged(imports(), home)
    yield f"{len(graph)} modules"
    yield from (f"CIRCLE {' '.join(part)}" for part in circles(graph) if len(part) > 1)
    if "--rows" in sys.argv:
        yield " ".join(rows(graph))


if __name__ == "__main__":
    print("\n".join(_shown(Path(sys.argv[1]).read_text(encoding="utf-8"))))
