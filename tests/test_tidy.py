"""Style as a test: who may import whom, how long things may get, and who may change files.

The rules are functions from a module's source to complaints, so that each of them is itself tested on a bad example.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.processes import run
from tests.syntax import changes_files, dotted, names, nodes

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("formats", "store", "network", "pipeline", "rmqctl")
LONGEST_MODULE = 600
LONGEST_FUNCTION = 70
MOST_ARGUMENTS = 8
# click hands a command each flag by itself, and a compiled function takes its arrays one by one
MANY_ARGUMENTS = ("rmqctl/commands/", "rmqctl/flags/", "store/native/")
MOST_MODULES = 16
# whoever looks for one of these goes by its name: a verb of the command line
HEAVY = ("numpy", "construct", "rich", "pyarrow", "pyspark", "duckdb")
# the one module of store/ that may change files
WRITER = "store/files/io.py"
PRESENCE = "store/files/reading.py"
# each ends what it starts, and after a while in any case
STARTERS = (
    *("tests/processes.py", "tests/interop/toolchain.py", "tests/pipeline/cluster.py"),
    *("tests/proof/killed.py", "tests/proof/trying.py", "tests/pipeline/sink/killed.py"),
)

# The house from the ground up. A row is a room, or a module that lies beside rooms and that rooms above it use; what
# has no row of its own belongs to the row of its folder. A row imports from itself and from the rows before it.
HOUSE = tuple(
    """
    rmqctl.formats rmqctl.store.native rmqctl.store.status rmqctl.store.options rmqctl.store.files
    rmqctl.store.rocksdb rmqctl.store.config rmqctl.store.queues
    rmqctl.store.log rmqctl.store.index rmqctl.store.store_files rmqctl.store.compare
    rmqctl.store.read
    rmqctl.store.timer rmqctl.store.answers.config_offsets rmqctl.store.pop rmqctl.store.answers
    rmqctl.store.write.checks rmqctl.store.write.prepare
    rmqctl.store.scan rmqctl.store.log.survey rmqctl.store.journal rmqctl.store.clean
    rmqctl.store.write.appenders rmqctl.store.recover rmqctl.store.write
    rmqctl.store.write.bulk rmqctl.store.offsets rmqctl.store.dump rmqctl.store.info
    rmqctl.store.check.catalogue rmqctl.store.check rmqctl.store.repair rmqctl.store.read.follow rmqctl.store.export
    rmqctl.store.write.writer rmqctl.store.salvage rmqctl.store.snapshot rmqctl.store.twin rmqctl.store.predict
    rmqctl.store rmqctl.network.remoting rmqctl.network rmqctl.network.clients.channel
    rmqctl.network.clients.client rmqctl.network.clients.producing rmqctl.network.clients.hooks
    rmqctl.network.clients.producing.sender rmqctl.network.clients rmqctl.network.ha rmqctl.network.broker
    rmqctl.network.broker.pop rmqctl.network.broker.master_broker rmqctl.network.broker.admin
    rmqctl.network.broker.services
    rmqctl.network.grpc rmqctl.network.clients.push rmqctl.network.clients.consumer rmqctl.network.watching
    rmqctl.network.registration rmqctl.network.serving rmqctl.testing
    rmqctl.pipeline rmqctl.pipeline.jobs rmqctl.pipeline.sql.stores rmqctl.pipeline.spark rmqctl.pipeline.sql
    rmqctl.output rmqctl.language rmqctl.messages rmqctl.flags.types rmqctl.reports rmqctl rmqctl.report rmqctl.browse
    rmqctl.commands rmqctl.flags
    rmqctl.reports.changes rmqctl.commands.change rmqctl.commands.consumers rmqctl.commands.look rmqctl.exporting
    rmqctl.commands.many rmqctl.commands.more rmqctl.commands.wire
    """.split()
)

Rule = Callable[[str, str, ast.Module], Iterator[str]]


def _within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def module_name(path: str) -> str:
    """The name a module is imported by: the floors lie at the top of the repository, imported below `rmqctl`."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"rmqctl.{name}" if _within(name, FLOORS[:-1]) else name


def row_of(module: str) -> str | None:
    """The row of the house that a module belongs to; None for what is outside of it."""
    return max((row for row in HOUSE if _within(module, (row,))), key=len, default=None)


def _imported(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, inside functions too."""
    package = module_name(path).split(".")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    for plain in nodes(tree, ast.Import):
        yield from ((plain.lineno, alias.name) for alias in plain.names)
    for node in nodes(tree, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def imports_go_downwards(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    module = module_name(path)
    row = row_of(module)
    if row is None:
        return
    below = HOUSE[: HOUSE.index(row) + 1]
    for line, name in _imported(path, tree):
        if _within(name, (*FLOORS[:-1], "tests", "bench")):
            yield f"{line}: {module} must not import {name}"
        elif _within(name, ("rmqctl",)) and row_of(name) not in below:
            yield f"{line}: {module} must not import {name}, which stands above it"


def modules_are_short(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    lines = source.count("\n")
    if lines > LONGEST_MODULE:
        yield f"1: {lines} lines, more than {LONGEST_MODULE}"


def functions_are_short(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *nodes(tree, ast.FunctionDef),
        *nodes(tree, ast.AsyncFunctionDef),
    ]
    for function in functions:
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > LONGEST_FUNCTION:
            yield f"{function.lineno}: {function.name} has {lines} lines, more than {LONGEST_FUNCTION}"


def arguments_are_few(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    """What travels together is one object."""
    if path.startswith(MANY_ARGUMENTS) or not path.startswith(FLOORS):
        return
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *nodes(tree, ast.FunctionDef),
        *nodes(tree, ast.AsyncFunctionDef),
    ]
    for function in functions:
        given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        count = len(given) - (bool(given) and given[0].arg in ("self", "cls"))
        if count > MOST_ARGUMENTS:
            yield f"{function.lineno}: {function.name} has {count} arguments, more than {MOST_ARGUMENTS}"


def modules_say_their_job(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield "1: no module docstring"


def imports_name_what_they_take(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    yield from (f"{line}: star import of {name}" for line, name in _imported(path, tree) if name.endswith(".*"))


def errors_are_not_swallowed(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    for node in nodes(tree, ast.ExceptHandler):
        if node.type is None:
            yield f"{node.lineno}: bare except"
        elif dotted(node.type) in ("Exception", "BaseException") and all(
            isinstance(statement, ast.Pass | ast.Continue) for statement in node.body
        ):
            yield f"{node.lineno}: every error is swallowed"
    for call in nodes(tree, ast.Call):
        taken = {dotted(argument) for argument in call.args}
        if dotted(call.func).endswith("suppress") and taken & {"Exception", "BaseException"}:
            yield f"{call.lineno}: every error is suppressed"


def only_the_command_line_prints(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    if path.startswith(("rmqctl/", "tests/", "bench/")):
        return
    for call in nodes(tree, ast.Call):
        if dotted(call.func) in ("print", "sys.stdout.write", "sys.stderr.write", "input", "click.echo"):
            yield f"{call.lineno}: {dotted(call.func)} outside of rmqctl/"


def nothing_is_left_to_do(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    for number, line in enumerate(source.splitlines(), start=1):
        if re.search(r"\b(FIX" + r"ME|TO" + r"DO|XX" + r"X)\b", line):
            yield f"{number}: unfinished work belongs into an issue"


def one_module_changes_files(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    if not path.startswith("store/") or path == WRITER:
        return
    from_writer: set[str] = set()
    for node in nodes(tree, ast.ImportFrom):
        if node.module in ("rmqctl.store.files", "rmqctl.store.files.io"):
            from_writer |= {alias.asname or alias.name for alias in node.names}
        if node.module in ("os", "shutil", "mmap", "tempfile"):
            yield f"{node.lineno}: import {node.module} as a module, so that this test sees its calls"
    for call in nodes(tree, ast.Call):
        if changes_files(call, from_writer):
            yield f"{call.lineno}: {dotted(call.func)} changes files, which only {WRITER} may"


def a_failing_disk_is_no_absence(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    if not path.startswith("store/") or path == PRESENCE:
        return
    for call in nodes(tree, ast.Call):
        name = dotted(call.func)
        asked = re.fullmatch(r"os\.path\.(l?exists|is(file|dir|link))|.+\.(exists|is_(file|dir|symlink))", name)
        # what os.scandir gives has its own
        if asked and not name.startswith("entry."):
            yield f"{call.lineno}: {name} takes an error of the disk for absence: {PRESENCE} does not"


def processes_have_a_limit(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    if not path.startswith("tests/") or path in STARTERS:
        return
    for call in nodes(tree, ast.Call):
        name = dotted(call.func)
        limited = name != "subprocess.Popen" and any(keyword.arg == "timeout" for keyword in call.keywords)
        if not limited and re.match(
            r"subprocess\.([a-z]|Popen)|multiprocessing\.|Popen$|os\.(fork|system|popen)$", name
        ):
            yield f"{call.lineno}: {name} without a limit; see tests/processes.py"


RULES: tuple[Rule, ...] = (
    imports_go_downwards,
    modules_are_short,
    functions_are_short,
    arguments_are_few,
    modules_say_their_job,
    imports_name_what_they_take,
    errors_are_not_swallowed,
    only_the_command_line_prints,
    nothing_is_left_to_do,
    one_module_changes_files,
    a_failing_disk_is_no_absence,
    processes_have_a_limit,
)


@functools.cache
def sources() -> dict[str, str]:
    """Every module's path -> its source."""
    found = [path for top in (*FLOORS, "tests", "bench") for path in sorted((ROOT / top).rglob("*.py"))]
    # the floors are reached below rmqctl/ as well, by links that make one name of them
    found = [path for path in found if path.resolve() == path]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


@functools.cache
def modules() -> dict[str, tuple[str, ast.Module]]:
    """Every module's path -> its source and what that is parsed to: once for all rules."""
    return {path: (source, ast.parse(source)) for path, source in sources().items()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_is_tidy(rule: Rule) -> None:
    every = modules()
    assert len(every) > 30
    complaints = [f"{path}:{said}" for path, (source, tree) in every.items() for said in rule(path, source, tree)]
    assert complaints == []


def test_every_room_has_its_row() -> None:
    homes = {module_name(path).rpartition(".")[0] for path in modules() if path.startswith(FLOORS)}
    assert len(HOUSE) == len(set(HOUSE))
    assert sorted(homes - set(HOUSE) - {""}) == []


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Modules that need one another, a set for each circle: all that each of them reaches and is reached from."""
    reached: dict[str, set[str]] = {}
    for module in graph:
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            further = graph.get(waiting.pop(), set()) - seen
            seen |= further
            waiting.extend(further)
        reached[module] = seen
    found = [
        {one for one in reached[module] if module in reached[one]} for module in graph if module in reached[module]
    ]
    return [circle for place, circle in enumerate(found) if circle not in found[:place]]


def import_graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """What each module imports of ours, inside functions and for types too."""
    known = {module_name(path): path for path in trees if path.startswith(FLOORS)}
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        named = {name for _, name in _imported(path, trees[path])}
        graph[module] = {one if one in known else one.rpartition(".")[0] for one in named} & known.keys() - {module}
    return graph


def crowded(paths: Iterable[str]) -> list[str]:
    """Folders with more modules than a reader takes in at once; a package's `__init__.py` is none."""
    shelves = Counter(path.rpartition("/")[0] for path in paths if not path.endswith("/__init__.py"))
    return [
        f"{shelf}/: {count} modules, more than {MOST_MODULES}"
        for shelf, count in sorted(shelves.items())
        if count > MOST_MODULES
    ]


def test_no_shelf_is_crowded() -> None:
    assert crowded(path for path in modules() if path.startswith((*FLOORS, "bench"))) == []


def names_given_twice(trees: dict[str, ast.Module]) -> list[str]:
    """Public classes, and types with a name of their own, that two modules define: a reader would take the one for the
    other. What only its module uses is private. Type variables are exempt: they stand for nothing outside of a line."""
    homes: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for node in tree.body if path.startswith(FLOORS) else ():
            given = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign) and not (isinstance(node.value, ast.Call) and "TypeVar" in names(node)):
                given = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in given:
                if re.match(r"[A-Z]\w*[a-z]", name):
                    homes.setdefault(name, []).append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(homes.items()) if len(paths) > 1]


def test_one_name_is_one_thing() -> None:
    assert names_given_twice({path: tree for path, (_, tree) in modules().items()}) == []


def test_no_module_needs_itself_by_way_of_others() -> None:
    assert circles(import_graph({path: tree for path, (_, tree) in modules().items()})) == []


def test_the_command_line_starts_without_what_is_heavy() -> None:
    code = f"import sys, rmqctl.main; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    ended = run([sys.executable, "-c", code])
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_mypy_sees_every_floor() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"rmqctl", "pyspark_rocketmq", "tests", "bench"} == set(settings["tool"]["mypy"]["packages"])
    linked = ROOT / settings["tool"]["mypy"]["mypy_path"] / "rmqctl"
    assert [top for top in FLOORS[:-1] if (linked / top).resolve() != ROOT / top] == []


def test_every_source_is_there_once() -> None:
    assert [path for path in sources() if (ROOT / path).is_symlink()] == []
    assert [top for top in FLOORS[:-1] if (ROOT / "rmqctl" / top).exists()] == []
    for top in FLOORS[:-1]:
        found = importlib.util.find_spec(f"rmqctl.{top}")
        assert found is not None
        assert found.origin == str(ROOT / top / "__init__.py")


def test_every_pin_is_exact_and_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    exact = re.compile(r'[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*(; python_version (<|>=) "3\.[0-9]+")?')
    assert [line for line in lines if not exact.fullmatch(line)] == []
    pinned = {line.partition("==")[0].lower() for line in lines}
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {match[0].lower() for one in wanted if (match := re.match(r"[A-Za-z0-9_.-]+", one))}
    assert names - pinned == set()
