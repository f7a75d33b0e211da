"""The short way in: the same as click's, and without anything that takes long to import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqctl.commands.look.query as query_module
from rmqctl import start
from rmqctl.finding import Question
from rmqctl.opening import COMPLETION_VARIABLE, StoreLocation, locate_store
from rmqctl.output.output import Output
from tests.goldens import truth
from tests.opened import store_path
from tests.processes import run

ROOT = Path(__file__).parents[2]
ROW = truth("clean").messages[1234]
FORBIDDEN = (
    "asyncio click construct crcmod csv ctypes dataclasses email importlib.metadata inspect logging lz4 "
    "multiprocessing numpy pyarrow rich socket ssl subprocess tempfile zstandard"
).split()

WORDS = st.sampled_from(["-i", "--id", "-o", "--offset", "-s", "--store", "-t", "--topic", "--json", "-q", "--scan"])
VALUES = st.sampled_from(
    ["7F", "AbC", "0", "12", "007", "9" * 18, "9" * 19, "-1", "²", "", "x y", "--json", "/a/b", "."]
)


@pytest.fixture
def clicked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[StoreLocation, str, Question]]:
    """What click's command hands on, instead of doing it."""
    got: list[tuple[StoreLocation, str, Question]] = []

    def find(store: StoreLocation, output: Output, wanted: Question) -> int:
        got.append((store, output.format, wanted))
        return 0

    monkeypatch.setattr(query_module, "find_and_show", find)
    return got


def by_click(arguments: list[str], got: list[Any]) -> tuple[StoreLocation, str, Question] | None:
    got.clear()
    try:
        with query_module.query.make_context("query", list(arguments)) as context:
            query_module.query.invoke(context)
    except (click.ClickException, click.exceptions.Exit):
        return None
    return got[0]  # type: ignore[no-any-return]  # it is whatever the fake was given


def meaning(short: start.Short) -> tuple[StoreLocation, str, Question]:
    location = locate_store(None if short.store is None else Path(short.store), None)
    return location, "json" if short.as_json else "table", short.wanted


def test_what_is_understood_is_what_click_makes_of_it(
    clicked: list[tuple[StoreLocation, str, Question]], monkeypatch: pytest.MonkeyPatch
) -> None:
    @given(
        st.lists(st.one_of(WORDS, VALUES, st.text(max_size=3)), max_size=7), st.sampled_from([None, "", "/from/env"])
    )
    def same(arguments: list[str], variable: str | None) -> None:
        monkeypatch.delenv("RMQCTL_STORE", raising=False)
        if variable is not None:
            monkeypatch.setenv("RMQCTL_STORE", variable)
        short = start.understood(["query", *arguments])
        if short is not None:
            assert meaning(short) == by_click(arguments, clicked)

    same()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-i", "7F", "-s", "/a"],
        ["--id", "7F", "--topic", "T", "--json"],
        ["-o", "12", "--store", "/a", "--json"],
    ],
)
def test_plain_lookups_are_understood(
    arguments: list[str], clicked: list[tuple[StoreLocation, str, Question]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RMQCTL_STORE", raising=False)
    short = start.understood(["query", *arguments])
    assert short is not None
    assert meaning(short) == by_click(arguments, clicked)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["query"],
        ["info", "-i", "7F"],
        ["query", "-i"],
        ["query", "-i", "7F", "-i", "80"],
        ["query", "-i", "7F", "-o", "1"],
        ["query", "-o", "-1"],
        ["query", "-o", "1", "-t", "T"],
        ["query", "-i7F"],
        ["query", "--id=7F"],
        ["query", "-i", "7F", "--help"],
        ["query", "-i", "7F", "-c", "broker.conf"],
        ["query", "-i", "7F", "--format", "csv"],
    ],
)
def test_all_else_is_left_to_click(arguments: list[str]) -> None:
    assert start.understood(arguments) is None


def test_completion_is_left_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_complete")
    assert start.understood(["query", "-i", "7F"]) is None


def started(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from rmqctl import start; start.leave = int; code = start.main()\n"
        f"heavy = {{name for name in {FORBIDDEN!r} if name in sys.modules and name not in before}}\n"
        "print('imported', sorted(heavy), file=sys.stderr); sys.exit(code)"
    )
    return run([sys.executable, "-c", code, *map(str, arguments)], env={**os.environ, **(environment or {})})


@pytest.mark.parametrize(
    "how",
    [
        ["-i", ROW["msgId"]],
        ["-o", ROW["phyOffset"]],
        ["-i", ROW["properties"]["UNIQ_KEY"]],
        ["-i", ROW["properties"]["UNIQ_KEY"], "-t", ROW["topic"]],
        ["-i", ROW["msgId"], "--json"],
    ],
    ids=lambda how: " ".join(map(str, how))[:20],
)
def test_a_lookup_imports_nothing_that_takes_long(how: list[Any]) -> None:
    ended = started("query", "-s", store_path("clean"), *how)
    assert ended.returncode == 0
    assert str(ROW["phyOffset"]) in ended.stdout
    assert ended.stderr.splitlines()[-1] == "imported []"


@pytest.mark.parametrize(
    "words",
    [
        ["info"], ["ls", "--queues"], ["du"], ["groups"], ["halves"], ["offsets", "show"], ["offsets", "lint"],
        ["clean", "--forecast"], ["purge", "-t", "TopicTest", "--dry-run"], ["snapshot", "COPY"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_verb_that_needs_no_arrays_imports_none(words: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom rmqctl.start import main\n"
        "try: main()\nfinally: print(sorted({'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    given = [word.replace("COPY", str(tmp_path / "copy")) for word in words]
    ended = run([sys.executable, "-c", code, *given, "-s", str(store_path("clean"))])
    assert ended.stdout.splitlines()[-1] == "[]", ended.stdout + ended.stderr


def test_a_check_loads_only_what_it_needs() -> None:
    unneeded = {
        "duckdb",
        "hmac",
        "numpy.ma",
        "pyarrow",
        "rich",
        "rmqctl.store.clean.cleaner",
        "rmqctl.store.write.writer",
    }
    code = (
        f"import sys\nfrom rmqctl.start import main\ntry: main()\nfinally: print(sorted({unneeded} & set(sys.modules)))"
    )
    ended = run([sys.executable, "-c", code, "check", "-s", str(store_path("clean"))])
    assert ended.stdout.splitlines()[-1] == "[]", ended.stdout + ended.stderr


@pytest.mark.parametrize(("offset", "code"), [(ROW["phyOffset"], 0), (ROW["phyOffset"] + 1, 1)])
def test_all_is_said_before_the_process_ends(offset: int, code: int) -> None:
    command = [sys.executable, "-m", "rmqctl", "query", "-o", str(offset), "-s", str(store_path("clean")), "--json"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = run(command, env=buffered)
    assert ended.returncode == code
    assert [line[:1] for line in ended.stdout.splitlines()] == ["{"] * (code == 0)
    assert [line[:1] for line in ended.stderr.splitlines()] == ["{"] * (code == 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_loud() -> None:
    command = [sys.executable, "-m", "rmqctl", "query", "-o", str(ROW["phyOffset"]), "-s", str(store_path("clean"))]
    with open("/dev/full", "w") as full:
        ended = run(command, stdout=full)
    assert ended.returncode == 6
    assert "No space left on device" in ended.stderr


def test_its_failures_are_those_of_every_command(tmp_path: Path) -> None:
    absent = started("query", "-i", "7F", environment={"RMQCTL_STORE": str(tmp_path / "none")})
    assert absent.returncode == 3
    assert absent.stderr.startswith(f"rmqctl: {tmp_path}/none: there is no such directory\n")
    unknown = started("query", "-o", ROW["phyOffset"] + 1, "-s", store_path("clean"))
    assert unknown.returncode == 1
    assert "it is inside the message of" in unknown.stderr


@pytest.mark.parametrize("verb", [["sql", "select count(*) as n from messages"], ["stats"]], ids=["sql", "stats"])
def test_duckdb_says_nothing_at_the_end(verb: list[str]) -> None:
    """It complains on stderr of objects that are left when the process ends."""
    pytest.importorskip("duckdb")
    ended = run([sys.executable, "-m", "rmqctl.start", *verb, "-s", str(store_path("clean")), "--json"])
    assert (ended.returncode, ended.stderr) == (0, "")
