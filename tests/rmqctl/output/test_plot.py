"""`--plot` of stats, groups and delays: every label with its number, plain text at 80 columns."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.output.plot import Plot, joined
from rmqctl.store.status import TUI
from tests.opened import store_path
from tests.rmqctl.looking import run

pytest.importorskip("plotext")
CALLS = {
    "stats": (["stats"], ["--by", "topic"], ["topic"], "messages"),
    "groups": (["groups"], ["--queues"], ["group", "topic", "queue_id"], "lag"),
    "delays": (["delays"], [], ["kind", "level"], "pending"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_each_label_has_its_number(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, more, names, value = CALLS[verb]
    command = [*command, *more, "-s", str(store_path("broker-real"))]
    rows = [row for row in run(*command, "--json").objects if row.get(value) and row.get("level", 1) is not None]
    done = run(*command, "--plot")
    assert done.code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING)  # what waits is overdue by the day of the test
    assert "\x1b" not in done.out + done.err
    assert max(map(len, done.out.splitlines())) <= 80
    drawn = [line.partition("┤")[0].split() for line in done.out.splitlines() if "┤█" in line]
    assert rows
    for row in rows:
        label = [str(row[name]) for name in names]
        assert [words for words in drawn if words[: len(label)] == label and words[-1] == str(row[value])]
    assert run(*command, "--plot", "--json").code == exit_codes.USAGE
    monkeypatch.setitem(sys.modules, "plotext", None)
    missing = run(*command, "--plot")
    assert missing.code == exit_codes.REFUSED
    assert TUI in missing.err


@pytest.mark.parametrize("count", [1, 2, 40, 60])
def test_hostile_names_and_many_bars(count: int, capfd: pytest.CaptureFixture[str]) -> None:
    plot = Plot("lag", "lag", joined("group"))
    rows: list[dict[str, Any]] = [{"group": f"\x1b[31m{'组' * 60}\n{n:03}", "lag": n or None} for n in range(count)]
    for encoding in ("utf-8", "ascii"):
        lines = plot.lines(rows, 80, encoding)
        bars = min(count, 40)
        assert [line.partition("|" if encoding == "ascii" else "┤")[0].split()[-1] for line in lines[1 : bars + 1]] == [
            str(n) if n else "-" for n in range(count - 1, count - bars - 1, -1)
        ]
        assert lines[bars + 1 :] == ([f"and {count - 40} more: {sum(range(count - 40))}"] if count > 40 else [])
        assert not any("\x1b" in line for line in lines)
    assert capfd.readouterr() == ("", "")


def test_hours_without_messages_are_drawn_as_none() -> None:
    plot = Plot("messages", "messages", joined("hour_timestamp"), "hour_timestamp", 3_600_000)
    lines = plot.lines([{"hour_timestamp": 3_600_000 * hour, "messages": 7} for hour in (100, 101, 180)], 80, None)
    assert lines[2].startswith("7┤██")
    assert lines[-3].startswith("0┤")
    assert "█" * 60 in lines[-3]
    assert lines[-1].split() == ["1970-01-05T04:00:00.000Z", "1970-01-08T12:00:00.000Z"]
