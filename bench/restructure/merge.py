"""Merge and move modules by a plan, with all imports of the repository: nothing that a module does is changed.

A line of the plan is `TARGET: SOURCE SOURCE …`, paths without `.py` from the root of the repository. The first source
gives the module's docstring; docstrings of the others become comments above their parts. Names that meet in a target
get the name of their module in front; of equal definitions one is left. What needs a look by hand is printed.

    python -m bench.restructure.merge PLAN [--dry-run]
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.restructure.names import PACKAGES, Edit, Source, bound_by, dotted, globals_used, is_type_checking

ROOT = Path(__file__).parents[2]
READERS = (*PACKAGES, "pyspark_rocketmq", "tests", "bench")
"""Folders whose imports are rewritten."""
LONGEST = 600
_BUILTINS = frozenset(dir(builtins))
_MODULE = re.compile(r"rmqctl(?:\.[A-Za-z_0-9]+)+")
_HERE = "here"
Import = ast.ImportFrom | ast.Import


class Plan:
    """Which sources go into which target, and the names of modules and of what is in them, before and after."""

    def __init__(self, text: str) -> None:
        self.targets: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.strip() and not line.startswith("#"):
                target, _, named = line.partition(":")
                self.targets[target.strip() + ".py"] = [f"{each}.py" for each in named.split()]
        self.target_of = {each: target for target, sources in self.targets.items() for each in sources}
        self.modules = {dotted(each): dotted(target) for each, target in self.target_of.items()}
        self.sources = {each: Source.read(ROOT, each) for each in self.target_of}
        self.renames: dict[str, dict[str, str]] = {}
        self.existing = {dotted(path) for path in modules_below(PACKAGES)}
        self.notes: set[str] = set()
        for target, sources in self.targets.items():
            self._resolve(target, [self.sources[each] for each in sources])

    def moved(self, module: str, name: str) -> tuple[str, str]:
        """Return where `from module import name` leads after the plan; the name is "" where it is a module."""
        inner = f"{module}.{name}"
        if inner in self.existing:
            return self.modules.get(inner, inner), ""
        return self.modules.get(module, module), self.renames.get(module, {}).get(name, name)

    def _origin(self, node: ast.stmt, name: str, own: str) -> str:
        """Return what a statement of the top level binds `name` to."""
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    module, attribute = self.moved(node.module or "", alias.name)
                    return _HERE if module == own else f"{module}:{attribute}"
        if isinstance(node, ast.Import):
            return "import " + ast.dump(node)
        return "=" + ast.dump(node)

    def _resolve(self, target: str, sources: list[Source]) -> None:
        """Choose new names where two sources bind one name to different things."""
        own = dotted(target)
        taken: dict[str, tuple[str, Source]] = {}
        for source in sources:
            for name, origin in self._bound(source, own).items():
                before = taken.setdefault(name, (origin, source))
                if before[1] is source:
                    continue
                if before[0] == origin:
                    if origin.startswith("="):
                        source.dropped.add(name)
                    continue
                new = f"_{source.stem}{name}" if name.startswith("_") else f"{source.stem}_{name}"
                new = new.upper() if name.isupper() else new
                source.renames[name] = new
                taken[new] = (origin, source)
                if origin.startswith("="):
                    self.renames.setdefault(source.name, {})[name] = new
                self.notes.add(f"RENAMED {target}: {name} of {source.path} becomes {new}")
        self._look_at_builtins(target, sources, {name: owner for name, (_, owner) in taken.items()})

    def _bound(self, source: Source, own: str) -> dict[str, str]:
        bound: dict[str, str] = {}
        for statement in source.tree.body:
            for each in statement.body if is_type_checking(statement) else [statement]:  # type: ignore[attr-defined]
                for name in bound_by(each):
                    bound.setdefault(name, self._origin(each, name, own))
        return {name: origin for name, origin in bound.items() if origin != _HERE and not name.startswith("__")}

    def _look_at_builtins(self, target: str, sources: list[Source], owners: dict[str, Source]) -> None:
        for source in sources:
            for _, name, _ in globals_used(source.tree):
                if name in _BUILTINS and owners.get(name, source) is not source:
                    self.notes.add(f"BUILTIN {target}: {source.path} uses {name}, {owners[name].path} binds it")


def modules_below(folders: Iterable[str]) -> list[str]:
    """Return the paths of all modules below folders, those behind links left out."""
    return sorted(
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not any(each.is_symlink() for each in path.parents)
    )


def import_lines(plan: Plan, node: Import, own: str | None, renames: dict[str, str]) -> list[str]:
    """Return the imports that stand for one after the plan, without those of the module itself."""
    lines = []
    for alias in node.names:
        bound = alias.asname or alias.name
        new = renames.get(bound, bound)
        if isinstance(node, ast.Import):
            module = plan.modules.get(alias.name, alias.name)
            lines.append(f"import {module}" + (f" as {new}" if alias.asname or new != bound else ""))
            continue
        module, attribute = plan.moved(node.module or "", alias.name)
        if module == own:
            continue
        if attribute == "":
            module, _, attribute = module.rpartition(".")
        # `import a as a` says that a is handed on
        as_it_is = new == attribute and alias.asname != alias.name
        lines.append(f"from {module} import {attribute}" + ("" if as_it_is else f" as {new}"))
    return lines


def _lines_before(node: Import) -> list[str]:
    start = "import " if isinstance(node, ast.Import) else f"from {node.module} import "
    return [start + each.name + (f" as {each.asname}" if each.asname else "") for each in node.names]


def rewritten_imports(plan: Plan, source: Source, own: str | None, nodes: Iterable[ast.AST]) -> Iterator[Edit]:
    """Yield the edits of imports that stay where they stand."""
    for node in nodes:
        if not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        lines = import_lines(plan, node, own, {})
        if lines != _lines_before(node):
            yield source.edit(node, f"\n{' ' * node.col_offset}".join(lines) or "pass")


def rewritten_names(plan: Plan, source: Source, own: str) -> Iterator[Edit]:
    """Yield the edits of names in a merged source: renamed ones, and aliases of what is in the same module now."""
    inside = dict(source.renames)
    aliases: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module, attribute = plan.moved(node.module, alias.name)
                bound = alias.asname or alias.name
                if module == own and not attribute:
                    aliases[bound] = f"{node.module}.{alias.name}"
                elif module == own and attribute != bound:
                    inside[bound] = attribute
    stored = {
        each.id for each in ast.walk(source.tree) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }
    stored |= {each.arg for each in ast.walk(source.tree) if isinstance(each, ast.arg)}
    done: set[int] = set()
    for node, name, around in globals_used(source.tree):
        if name not in inside:
            continue
        new = inside[name]
        if new in around:
            plan.notes.add(f"SHADOWED {source.path}: {name} becomes {new}, a local name there")
        edit = _renamed(source, node, name, new)
        done.add(edit.start)
        yield edit
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            new = plan.renames.get(aliases[node.value.id], {}).get(node.attr, node.attr)
            if new in stored:
                plan.notes.add(
                    f"SHADOWED {source.path}: {node.value.id}.{node.attr} becomes {new}, a local name somewhere"
                )
            yield source.edit(node, new)
        # an import inside a function binds a local name, which is no name of the top level until now
        elif isinstance(node, ast.Name) and node.id in inside.keys() - source.renames.keys():
            yield from [] if source.begin(node) in done else [source.edit(node, inside[node.id])]


def _renamed(source: Source, node: ast.AST, name: str, new: str) -> Edit:
    if isinstance(node, ast.Name):
        return source.edit(node, new)
    if isinstance(node, ast.Global):
        return source.edit(node, re.sub(rf"\b{name}\b", new, source.text(node)))
    at = source.raw.index(name.encode(), source.begin(node))
    return Edit(at, at + len(name.encode()), new)


def rewritten_strings(plan: Plan, source: Source) -> Iterator[Edit]:
    """Yield the edits of strings that name a module, or what is in one."""

    def replaced(match: re.Match[str]) -> str:
        module, _, attribute = match[0].rpartition(".")
        if match[0] in plan.modules:
            return plan.modules[match[0]]
        if module in plan.modules:
            return f"{plan.modules[module]}.{plan.renames.get(module, {}).get(attribute, attribute)}"
        return match[0]

    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "rmqctl." in node.value:
            text = source.text(node)
            if (new := _MODULE.sub(replaced, text)) != text:
                yield source.edit(node, new)


def renamed_attributes(plan: Plan, source: Source, own: str | None = None) -> Iterator[Edit]:
    """Yield the edits of `module.name` and `setattr(module, "name", …)` where that name is another one now; those of
    modules that are merged into the same one are not among them."""
    aliases = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in plan.renames and plan.modules[f"{node.module}.{alias.name}"] != own
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            if new := plan.renames[aliases[node.value.id]].get(node.attr):
                yield Edit(source.end(node) - len(node.attr), source.end(node), new)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[0], ast.Name):
            renamed = plan.renames.get(aliases.get(node.args[0].id, ""), {})
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value in renamed:
                yield source.edit(name, f'"{renamed[name.value]}"')


def _ordered(plan: Plan, sources: list[Source]) -> list[Source]:
    """Return the sources so that what a module needs while it is loaded stands before it."""
    by_name = {source.name: source for source in sources}
    done: list[Source] = []

    def visit(source: Source, path: tuple[str, ...]) -> None:
        if source.name in path:
            plan.notes.add(f"CIRCLE {' '.join((*path, source.name))}")
        if source in done or source.name in path:
            return
        for node in source.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for needed in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    if needed in by_name and needed != source.name:
                        visit(by_name[needed], (*path, source.name))
        done.append(source)

    for source in sources:
        visit(source, ())
    return done


class Merged:
    """The text of a target, in parts."""

    def __init__(self, plan: Plan, target: str) -> None:
        self.plan = plan
        self.own = dotted(target)
        self.imports: list[str] = []
        self.typed: list[str] = []
        sources = [plan.sources[each] for each in plan.targets[target]]
        self.head = sources[0].docstring
        self.parts = [self._part(source, is_first=source is sources[0]) for source in _ordered(plan, sources)]

    def text(self) -> str:
        """Return the module's text; imports are neither sorted nor joined."""
        known = set(self.imports)
        typed = [line for line in dict.fromkeys(self.typed) if line not in known]
        head = f'"""{self.head}\n"""' if "\n" in self.head else f'"""{self.head}"""'
        lines = [head, "", "from __future__ import annotations", "", *dict.fromkeys(self.imports)]
        if typed:
            lines += ["", "if TYPE_CHECKING:", *(f"    {line}" for line in typed)]
        return "\n".join(lines) + "\n\n" + "\n\n\n".join(each for each in self.parts if each) + "\n"

    def _part(self, source: Source, *, is_first: bool) -> str:
        removed = list(self._removed(source))
        top = set(map(id, source.tree.body))
        nested = [each for each in ast.walk(source.tree) if id(each) not in top]
        edits = [
            *rewritten_names(self.plan, source, self.own),
            *rewritten_strings(self.plan, source),
            *renamed_attributes(self.plan, source, self.own),
            *rewritten_imports(self.plan, source, self.own, nested),
        ]
        kept = [each for each in edits if not any(edit.start <= each.start < edit.end for edit in removed)]
        text = source.applied([*kept, *removed]).strip()
        return text if is_first or not source.docstring else f"{_commented(source.docstring)}\n\n{text}".strip()

    def _removed(self, source: Source) -> Iterator[Edit]:
        """Yield the edits that take away docstring, imports and what an earlier source has too; keep the imports."""
        body = source.tree.body
        for place, statement in enumerate(body):
            if place == 0 and source.docstring:
                yield source.edit(statement, "")
            elif isinstance(statement, ast.ImportFrom | ast.Import):
                if getattr(statement, "module", "") != "__future__":
                    self.imports += import_lines(self.plan, statement, self.own, source.renames)
                yield source.edit(statement, "")
            elif is_type_checking(statement):
                for each in statement.body:  # type: ignore[attr-defined]
                    self.typed += import_lines(self.plan, each, self.own, source.renames)
                yield source.edit(statement, "")
            elif source.dropped.intersection(bound_by(statement)):
                first = min(map(source.begin, getattr(statement, "decorator_list", [])), default=None)
                following = body[place + 1] if place + 1 < len(body) else None
                is_told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                last = source.end(following) if is_told and following else source.end(statement)
                yield Edit(source.begin(statement) if first is None else first - 1, last, "")


def _commented(text: str) -> str:
    wrapped = (
        textwrap.fill(paragraph, 116) if not re.search(r"\n([ |*-]|\d\.)", paragraph) else paragraph
        for paragraph in text.strip().split("\n\n")
    )
    return "\n".join(f"# {line}".rstrip() for line in "\n\n".join(wrapped).splitlines())


def _others(plan: Plan) -> Iterator[tuple[Path, str]]:
    """Yield the modules that stay where they are and import from those that move, with their new text."""
    for path in modules_below(READERS):
        if path in plan.target_of or path.startswith("bench/restructure"):
            continue
        source = Source.read(ROOT, path)
        edits = [
            *rewritten_imports(plan, source, None, ast.walk(source.tree)),
            *rewritten_strings(plan, source),
            *renamed_attributes(plan, source),
        ]
        if edits:
            yield ROOT / path, source.applied(edits)


def _remove_empty_packages() -> None:
    """Remove folders in which no module is left but an `__init__` that says nothing."""
    for folder in sorted({(ROOT / path).parent for path in modules_below(PACKAGES)}, reverse=True):
        init = folder / "__init__.py"
        others = [each for each in folder.iterdir() if each.name not in ("__init__.py", "__pycache__")]
        if not others and init.exists() and len(ast.parse(init.read_text(encoding="utf-8")).body) <= 1:
            init.unlink()
            for left in sorted(folder.rglob("*"), reverse=True):
                left.unlink() if left.is_file() else left.rmdir()
            folder.rmdir()


def main(arguments: list[str]) -> None:
    """Carry out the plan of the command line."""
    plan = Plan(Path(arguments[0]).read_text(encoding="utf-8"))
    texts = {target: Merged(plan, target).text() for target in plan.targets}
    for target, text in texts.items():
        ast.parse(text)
        if len(text.splitlines()) > LONGEST:
            plan.notes.add(f"LONG {target}: {len(text.splitlines())} lines")
    changed = dict(_others(plan))
    print("\n".join(sorted(plan.notes)))
    print(f"{len(plan.target_of)} modules become {len(texts)}; {len(changed)} others import from them")
    if "--dry-run" in arguments:
        return
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    for each in plan.target_of:
        (ROOT / each).unlink()
    for target, text in texts.items():
        (ROOT / target).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / target).write_text(text, encoding="utf-8")
    _remove_empty_packages()
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "-q", "--fix", "--select", "I,F401,F811,PIE790", "."], cwd=ROOT, check=False)
    subprocess.run([*ruff, "format", "-q", "."], cwd=ROOT, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
