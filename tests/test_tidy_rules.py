"""The rules of test_tidy.py on examples: each must complain about the bad ones and leave the good ones alone."""

from __future__ import annotations

import ast

import pytest

from tests import test_tidy as tidy

BAD: list[tuple[tidy.Rule, str, str]] = [
    (tidy.imports_go_downwards, "formats/message.py", "import rmqctl.store"),
    (tidy.imports_go_downwards, "formats/message.py", "import store"),
    (tidy.imports_go_downwards, "formats/message.py", "def f():\n    from rmqctl.output import table"),
    (tidy.imports_go_downwards, "store/read/get.py", "from rmqctl.output.output import Output"),
    (tidy.imports_go_downwards, "store/read/get.py", "import rmqctl.pipeline.splits"),
    (tidy.imports_go_downwards, "store/read/get.py", "from tests.golden import delta"),
    (tidy.imports_go_downwards, "store/files/layout.py", "from rmqctl.store.config.config import StoreConfig"),
    (tidy.imports_go_downwards, "store/files/layout.py", "from ..config import StoreConfig"),
    (tidy.imports_go_downwards, "store/log/walk.py", "from rmqctl.store.read import frames"),
    (tidy.imports_go_downwards, "store/log/walk.py", "from rmqctl.store import reader"),
    (tidy.imports_go_downwards, "store/log/walk.py", "from ..read import frames"),
    (tidy.imports_go_downwards, "store/check/log.py", "from rmqctl.store.repair.repair import repair"),
    (tidy.modules_are_short, "store/reader.py", "x = 1\n" * 601),
    (tidy.functions_are_short, "store/reader.py", "def f():\n" + "    x = 1\n" * 70),
    (tidy.arguments_are_few, "store/reader.py", "def f(a, b, c, d, /, e, f, g, *, h, i): ..."),
    (tidy.arguments_are_few, "rmqctl/demo.py", "class A:\n    async def f(self, a, b, c, d, e, f, g, h, i): ..."),
    (tidy.modules_say_their_job, "store/reader.py", "import os"),
    (tidy.imports_name_what_they_take, "store/reader.py", "from formats import *"),
    (tidy.errors_are_not_swallowed, "store/reader.py", "try:\n    f()\nexcept:\n    g()"),
    (tidy.errors_are_not_swallowed, "rmqctl/main.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (tidy.errors_are_not_swallowed, "rmqctl/main.py", "with contextlib.suppress(Exception):\n    f()"),
    (tidy.only_the_command_line_prints, "store/reader.py", "print(1)"),
    (tidy.only_the_command_line_prints, "formats/message.py", "sys.stderr.write('x')"),
    (tidy.nothing_is_left_to_do, "store/reader.py", "# TO" + "DO later"),
    (tidy.a_failing_disk_is_no_absence, "store/reader.py", "if os.path.lexists(path): ..."),
    (tidy.a_failing_disk_is_no_absence, "store/reader.py", "(root / 'abort').exists()"),
    (tidy.a_failing_disk_is_no_absence, "store/reader.py", "path.is_dir()"),
]
BAD += [
    (tidy.processes_have_a_limit, "tests/store/test_x.py", call)
    for call in ("subprocess.run(['x'])", "subprocess.Popen(['x'])", "subprocess.check_output(['x'])", "os.fork()",
                 "with subprocess.Popen(['x'], text=True) as p: pass", "multiprocessing.Process(target=f)")
]  # fmt: skip
GOOD: list[tuple[tidy.Rule, str, str]] = [
    (tidy.imports_go_downwards, "formats/message.py", "import os, rmqctl.formats.errors"),
    (tidy.imports_go_downwards, "store/read/get.py", "from rmqctl.store.log import walk\nimport rmqctl.formats"),
    (
        tidy.imports_go_downwards,
        "store/queues/table.py",
        "from rmqctl.store.config import X\nfrom . import unit",
    ),
    (tidy.imports_go_downwards, "store/files/lock.py", "from rmqctl.store.files import io\nfrom storeroom import x"),
    (tidy.imports_go_downwards, "rmqctl/main.py", "import rmqctl.store, rmqctl.pipeline, rmqctl.output"),
    (tidy.imports_go_downwards, "tests/test_x.py", "import rmqctl.main, store"),
    (tidy.modules_are_short, "store/reader.py", "x = 1\n" * 600),
    (tidy.functions_are_short, "store/reader.py", "def f():\n" + "    x = 1\n" * 69),
    (tidy.arguments_are_few, "store/reader.py", "class A:\n    def f(self, a, b, c, d, e, f, g, *, h, **more): ..."),
    (tidy.arguments_are_few, "rmqctl/commands/look/cat.py", "def f(a, b, c, d, e, f, g, h, i): ..."),
    (tidy.arguments_are_few, "store/native/put.py", "def f(a, b, c, d, e, f, g, h, i): ..."),
    (tidy.errors_are_not_swallowed, "rmqctl/main.py", "try:\n    f()\nexcept Exception as error:\n    say(error)"),
    (tidy.errors_are_not_swallowed, "rmqctl/main.py", "with contextlib.suppress(OSError):\n    f()"),
    (tidy.only_the_command_line_prints, "rmqctl/demo.py", "print(1)"),
    (tidy.processes_have_a_limit, "tests/store/test_x.py", "subprocess.run(['x'], timeout=60); run(['x'])"),
    (tidy.processes_have_a_limit, "tests/store/test_x.py", "raise subprocess.TimeoutExpired('x', 1)"),
    (tidy.a_failing_disk_is_no_absence, "store/reader.py", "is_there(path) or entry.is_file()"),
    (tidy.a_failing_disk_is_no_absence, "rmqctl/main.py", "path.exists()"),
    (tidy.processes_have_a_limit, "tests/processes.py", "subprocess.Popen(['x'])"),
    (tidy.processes_have_a_limit, "bench/x.py", "subprocess.run(['x'])"),
]


def test_a_crowded_shelf_is_seen() -> None:
    names = [f"store/elsewhere/m{number}.py" for number in range(tidy.MOST_MODULES)]
    assert tidy.crowded([*names, "store/elsewhere/__init__.py"]) == []
    assert tidy.crowded([*names, "store/elsewhere/one_more.py"]) == ["store/elsewhere/: 17 modules, more than 16"]


def test_a_name_given_twice_is_seen() -> None:
    sources = {
        "store/a.py": "class Plan: ...\nUnits = list[int]\nT = TypeVar('T')\nResult = TypeVar('Result')\nMOST = 1",
        "store/b.py": "class Plan: ...\nclass Units: ...\nResult = TypeVar('Result')\nMOST = 2",
        "pipeline/c.py": "class _Plan: ...\nclass Other: ...\ndef units(): ...",
        "tests/d.py": "class Other: ...",
    }
    found = tidy.names_given_twice({path: ast.parse(source) for path, source in sources.items()})
    assert found == ["Plan: store/a.py, store/b.py", "Units: store/a.py, store/b.py"]


CHANGES = """
open(p, "w")
open(p, "r+b")
open(p, mode="ab")
open(p, mode)
path.open("x")
os.open(p, os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"", 0)
os.replace(a, b)
os.posix_fallocate(fd, 0, 1)
shutil.rmtree(p)
tempfile.mkdtemp()
path.write_bytes(b"")
(root / "x").unlink()
path.rename(other)
path.replace(other)
path.touch()
mmap.mmap(fd, 0)
mmap.mmap(fd, 0, access=mmap.ACCESS_WRITE)
numpy.memmap(path)
array.tofile(f)
from os import replace
""".strip().splitlines()
LOOKS = """
open(p)
open(p, "rb")
path.open("rb")
path.open()
os.open(p, os.O_RDONLY | os.O_CLOEXEC)
os.stat(p)
os.path.join(a, b)
text.replace("a", "b")
dataclasses.replace(config, a=1)
mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
mmap.mmap(fd, 0, prot=mmap.PROT_READ)
numpy.memmap(path, mode="r")
table.append(1)
rename(a, b)
""".strip().splitlines()


def complaints(rule: tidy.Rule, path: str, source: str) -> list[str]:
    return list(rule(path, source, ast.parse(source)))


@pytest.mark.parametrize(("rule", "path", "source"), BAD)
def test_bad(rule: tidy.Rule, path: str, source: str) -> None:
    assert len(complaints(rule, path, source)) == 1


@pytest.mark.parametrize(("rule", "path", "source"), GOOD)
def test_good(rule: tidy.Rule, path: str, source: str) -> None:
    assert complaints(rule, path, source) == []


@pytest.mark.parametrize("line", CHANGES)
def test_a_change_of_files_is_seen_in_the_store_and_nowhere_else(line: str) -> None:
    assert len(complaints(tidy.one_module_changes_files, "store/clean.py", line)) == 1
    assert complaints(tidy.one_module_changes_files, tidy.WRITER, line) == []
    assert complaints(tidy.one_module_changes_files, "tests/test_clean.py", line) == []


@pytest.mark.parametrize("line", LOOKS)
def test_looking_is_no_change(line: str) -> None:
    assert complaints(tidy.one_module_changes_files, "store/clean.py", line) == []


def test_the_writer_may_be_called() -> None:
    source = "from rmqctl.store.files import io\nfrom rmqctl.store.files.io import take\nio.rename(a, b)\ntake(a, b)"
    assert complaints(tidy.one_module_changes_files, "store/clean.py", source) == []


def test_a_circle_is_found_however_long() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert tidy.circles(graph) == [{"a", "b", "c"}]
    sources = {"store/x.py": "def f():\n    from rmqctl.store import y", "store/y.py": "from rmqctl.store.x import f"}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    assert tidy.circles(tidy.import_graph(trees)) == [{"rmqctl.store.x", "rmqctl.store.y"}]


def test_every_rule_has_a_bad_example() -> None:
    assert {rule for rule, _, _ in BAD} | {tidy.one_module_changes_files} == set(tidy.RULES)
