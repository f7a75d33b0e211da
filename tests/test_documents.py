"""Documents are true: paths, the package map, the tests of each law, sessions of README and quick start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from rmqctl.main import VERBS, actions_of, cli
from tests.goldens import golden
from tests.processes import ROOT, run
from tests.test_tidy import FLOORS, HOUSE, module_name, sources

DOCUMENTS = sorted(
    [*(ROOT / "docs").glob("*.md"), *ROOT.glob("docs/zh/*.md"), *ROOT.glob("*.md"), *ROOT.glob("tests/*/README.md")]
)
LIMIT = 210 << 10
ARCHITECTURE = ROOT / "docs/architecture.md"
TOPS = (*FLOORS, "tests", "bench", "docs", "pyspark_rocketmq")
# its examples of what breaks a rule are of files that there need not be
OF_EXAMPLES = ("tests/test_tidy_rules.py",)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"\b[a-z_]+/[a-z_0-9/]+\.(?:py|c|h|md|ipynb)\b", text))
    named |= {match for match in re.findall(r"`([a-z_]+/[a-z_/]*)`", text) if match.partition("/")[0] in TOPS}
    folders = (ROOT, document.parent)
    assert sorted(name for name in named if not any((folder / name).exists() for folder in folders)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_named_without_their_folder_are_there(document: Path) -> None:
    named = re.findall(r"`([a-z_]+\.py)`", document.read_text(encoding="utf-8"))
    there = {Path(path).name for path in sources()} | {path.name for path in ROOT.glob("*.py")}
    assert sorted(set(named) - there) == []


def test_paths_in_sources_lead_somewhere() -> None:
    stale = []
    for path, source in sources().items():
        if path not in OF_EXAMPLES:
            named = re.findall(rf"(?<![\w/])(?:{'|'.join(TOPS)})/[a-z_0-9/]+\.(?:py|c|h|md)\b", source)
            stale += [f"{path}: {name}" for name in named if not (ROOT / name).exists()]
    assert stale == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_go_by_their_whole_name(document: Path) -> None:
    rooms = {room.split("/")[1] for room in rooms_told() if "/" in room}
    pattern = rf"(?<![\w./])(?:{'|'.join(FLOORS[:-1])})\.(?:{'|'.join(sorted(rooms))})\b(?!\()[\w.]*"
    assert re.findall(pattern, document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    inside = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert sorted(link for link in inside if not (document.parent / link).exists()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_anchors_lead_to_headings(document: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", document.read_text(encoding="utf-8")):
        target = document.parent / link if link else document
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}, (link, anchor)


def test_imports_in_documents_work() -> None:
    found = 0
    for document in DOCUMENTS:
        for block in re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
            assert not re.search(rf"^(?:from|import) (?:{'|'.join(FLOORS[:-1])})\b", block, re.MULTILINE), document
            for line in re.findall(r"^(?:from|import) rmqctl\b.*$", block, re.MULTILINE):
                exec(line, {})
                found += 1
    assert found


def rooms_told() -> list[str]:
    """Return the packages of the map, in its order."""
    text = ARCHITECTURE.read_text(encoding="utf-8").partition("## Packages")[2].partition("## ")[0]
    rooms = []
    for top, inner in re.findall(r"^([a-z_]+)/ {2,}\S.*\n((?: {12}.*\n)*)", text, re.MULTILINE):
        rooms += [top, *(f"{top}/{name}" for name in re.findall(r"[a-z_]+", inner))]
    return rooms


def test_the_map_has_every_package() -> None:
    """In the order of the packages, downwards; the order within a package is HOUSE's, which test_tidy.py proves."""
    told = rooms_told()
    rooms = {Path(path).parent.as_posix() for path in sources() if path.startswith(tuple(f"{top}/" for top in FLOORS))}
    assert sorted(told) == sorted(room for room in rooms if room.count("/") < 2)
    assert all(any(module_name(room).startswith(row) for row in HOUSE) for room in told)
    tops = [FLOORS.index(room.partition("/")[0]) for room in told]
    assert tops == sorted(tops)


def test_every_law_names_tests_that_are_there() -> None:
    laws = re.findall(r"^\| ([1-8]) \| (.*)$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [number for number, _ in laws] == list("12345678")
    for number, law in laws:
        named = re.findall(r"`(tests/[a-z_/]+\.py)(?:::(\w+))?`", law)
        assert named, number
        for path, function in named:
            assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), (path, function)


@pytest.mark.parametrize(("document", "least"), [("architecture.md", 6), ("operations.md", 20)])
def test_the_glossary_is_in_order(document: str, least: int) -> None:
    table = (ROOT / "docs" / document).read_text(encoding="utf-8").partition("## Glossary")[2]
    words = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)[1:]
    assert len(words) > least
    assert words == sorted(words)


class Session(NamedTuple):
    """A console block of a document: the golden store it runs on, and each command with its output."""

    golden: str
    steps: list[tuple[str, str]]


SESSION = re.compile(r"<!-- a copy of the golden store ([\w-]+) is at /data/store -->\n```console\n(.*?)```", re.DOTALL)
STORE = "/data/store"


def of_sessions() -> str:
    """The text of the documents with console sessions."""
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/quickstart.md"))


def sessions(text: str = "") -> list[Session]:
    """Return the sessions of a text, or of README and quick start, in their order."""
    found = []
    for name, block in SESSION.findall(text or of_sessions()):
        steps = [step.partition("\n") for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
        found.append(Session(name, [(command, output.strip("\n")) for command, _, output in steps]))
    return found


def held(session: Session, folder: Path, programs: Path = Path(sys.executable).parent) -> Iterator[str]:
    """What each command of a session prints, on a copy of its store, as if that lay at STORE. `programs`: where the
    command is."""
    store = folder / "store"
    golden(session.golden, folder / "from").rename(store)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    for command, _ in session.steps:
        ended = run(
            ["bash", "-c", command.replace(STORE, str(store))],
            cwd=folder,
            env={**os.environ, "PATH": path, "COLUMNS": "120", "LC_ALL": "C.UTF-8"},
            stderr=subprocess.STDOUT,
        )
        lines = ended.stdout.replace(str(store), STORE).splitlines()
        yield "\n".join(line.rstrip() for line in lines if not line.startswith("compiling ")).strip("\n")


def steady(text: str) -> str:
    """Without what differs from run to run: the time in the name of a journal."""
    return re.sub(r"\d{8}T\d{9}Z", "TIME", text)


def test_every_session_names_its_store() -> None:
    assert len(sessions()) == of_sessions().count("```console") == 4


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= 6 << 10
    first_screen = "\n".join(text.splitlines()[:50])
    assert [
        word for word in ("For operators", "## Install", "make install", "Five commands") if word not in first_screen
    ] == []
    assert len(re.findall(r"^\| `rmqctl [a-z]+ ", first_screen, re.MULTILINE)) == 5


def test_the_documents_are_short() -> None:
    """Measurements and stories of past days belong to git. LIMIT is for README and docs/ together."""
    documents = [*(ROOT / "docs").iterdir(), ROOT / "README.md"]
    assert sum(path.stat().st_size for path in documents if path.is_file()) <= LIMIT


@pytest.mark.parametrize(
    "session",
    sessions(),
    ids=lambda session: session.golden,
)
def test_sessions_print_what_they_say(session: Session, tmp_path: Path) -> None:
    if any(command.startswith("rmqctl sql") for command, _ in session.steps):
        pytest.importorskip("duckdb")
    for (command, said), printed in zip(session.steps, held(session, tmp_path), strict=True):
        assert steady(printed) == steady(said), command


def test_the_command_reference_has_every_option() -> None:
    """An option that verbs share is explained once; each verb names those it has."""
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    sets = re.findall(r"^\* (\*\w+\*): (.*)$", text, re.MULTILINE)
    assert sets
    entries = dict(re.findall(r"^### (.*)\n((?:(?!#).*\n)*)", text, re.MULTILINE))
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for action in actions_of(command):
            entry = entries.pop(name if action.name == name else f"{name} {action.name}")
            options = (one for one in action.params if isinstance(one, click.Option) and not one.hidden)
            named = set(re.findall(r"(?<![\w-])-[\w-]+", entry))
            for group, names in sets:
                named |= set(re.findall(r"--[a-z-]+", names)) if group in entry else set()
            assert [one.opts for one in options if not set(one.opts) & named] == [], action.name
            assert " ".join((action.help or "").split("\n\n")[0].split()) in entry
    assert entries == {}


def test_imports_of_the_notebook_work() -> None:
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    lines = re.findall(r"^(?:from|import) .*$", code, re.MULTILINE)
    assert any("rmqctl." in line for line in lines)
    assert not [line for line in lines if line.split()[1].partition(".")[0] in FLOORS[:-1]]
    for line in lines:
        exec(line, {})
