"""Tables on terminals of 80 and of 60 columns: no line is longer, and what tells one row from another is whole."""

from __future__ import annotations

import pytest

from tests.opened import store_path
from tests.quick import sample
from tests.rmqctl.looking import run
from tests.terminal import rmqctl_on_a_terminal

TABLES: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "ls": ("clean", ["ls"], ("topic",)),
    "ls --queues": ("clean", ["ls", "--queues"], ("topic", "queue_id")),
    "ls --files": ("clean", ["ls", "--files"], ("path",)),
    "du": ("clean", ["du", "-t", "*Topic*"], ("topic",)),
    "cat": ("clean", ["cat", "-n", "20"], ("topic", "queue_id", "physical_offset")),
    "query": ("clean", ["query", "-k", "hot"], ("queue_id", "physical_offset")),
    "groups": ("broker-real", ["groups", "--queues"], ("queue_id", "state")),
    "delays": ("broker-real", ["delays"], ("kind", "level", "state")),
    "halves": ("broker-real", ["halves"], ("queue_offset",)),
    "dlq": ("broker-real", ["dlq", "list"], ("group",)),
}
"""A table -> its store, the command, and columns whose values stand in every line that fits them."""


@pytest.mark.late
@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("name", sample(TABLES, ["cat", "groups"]))
def test_lines_fit_and_rows_can_be_told_apart(name: str, columns: int) -> None:
    store, (verb, *more), identity = TABLES[name]
    shown = rmqctl_on_a_terminal(verb, "-s", store_path(store), *more, columns=columns)
    rows = run(verb, "-s", store_path(store), *more, "--json").objects
    if verb == "du":
        rows = rows[0]["topics"]
    told = [line for line in shown.screen if line and not line.startswith("compiling")]
    assert all(len(line) <= columns for line in told)
    for row in rows:
        values = ["-" if row[one] is None else str(row[one]) for one in identity]
        if all(len(value) <= 15 for value in values):
            assert any(all(value in line.split() for value in values) for line in told), (row, told)


def test_a_process_that_uses_files_is_named_within_the_width() -> None:
    file = store_path("clean") / "commitlog" / "00000000000000000000"
    with file.open("rb"):
        shown = rmqctl_on_a_terminal("du", "-s", store_path("clean"), columns=80)
    assert any(line.startswith("process ") for line in shown.screen)
    assert all(len(line) <= 80 for line in shown.screen if not line.startswith("compiling"))


def test_columns_that_a_narrow_terminal_leaves_out_are_named() -> None:
    shown = rmqctl_on_a_terminal("cat", "-s", store_path("clean"), "-n", "2", columns=80)
    assert any(line.startswith("not shown at this width: keys") for line in shown.screen)
    wide = rmqctl_on_a_terminal("cat", "-s", store_path("clean"), "-n", "2", columns=250)
    assert not any("not shown" in line for line in wide.screen)


def test_what_is_wrong_with_the_offsets_is_said_of_which_file() -> None:
    shown = rmqctl_on_a_terminal("offsets", "lint", "-s", store_path("crash"), columns=80)
    rows = [line for line in shown.screen if line.startswith("notice")]
    files = [row["file"] for row in run("offsets", "lint", "-s", store_path("crash"), "--json").objects]
    assert len(files) == len(rows) == 4
    assert all(file in line.split() for file, line in zip(files, rows, strict=True))


def test_how_late_a_group_is_stays_before_what_can_be_counted() -> None:
    shown = rmqctl_on_a_terminal("groups", "-s", store_path("broker-real"), "-g", "g-retry", columns=62)
    heading = " ".join(shown.screen[:2]).split()
    assert {"lag", "time", "max"} & set(heading) == {"lag", "time"}
    assert any(line.split()[-2:] == ["16s", "behind"] for line in shown.screen)
