"""Data on stdout: tables, listings, JSON Lines and CSV."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.output import output
from rmqctl.output.output import FIRST_PAGE, FORMATS, Output, OutputFormat
from tests.terminal import TerminalText

HOSTILE = "red\x1b[31m[bold]:smile: \u202e"
ROWS: list[dict[str, Any]] = [
    {"topic": "TopicA", "queue_id": 3, "store_timestamp": 1_700_000_000_000, "keys": ["k1", "k2"], "body": "x"},
    {"topic": "B", "queue_id": 12, "store_timestamp": 1_700_000_000_001, "keys": [], "body": HOSTILE},
]
COLUMNS = ("topic", "queue_id", "store_timestamp", "body")


class Broken(io.StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.fixture
def plain() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> TerminalText:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    return TerminalText()


def test_a_piped_table_is_aligned_plain_text(plain: io.StringIO) -> None:
    assert Output(stream=plain).rows(COLUMNS, ROWS) == 2
    assert plain.getvalue().splitlines() == [
        "topic   queue id  store                     body",
        "TopicA         3  2023-11-14T22:13:20.000Z  x",
        r"B             12  2023-11-14T22:13:20.001Z  red\x1b[31m[bold]:smile: \u202e",
    ]


def test_a_table_on_a_terminal_fits_and_cuts_only_texts(terminal: TerminalText) -> None:
    Output(stream=terminal).rows(COLUMNS, [{**ROWS[0], "body": "long " * 40}, ROWS[1]])
    header, *lines = terminal.getvalue().splitlines()
    assert header.startswith("\x1b[1m")
    assert header.endswith("queue\x1b[0m")
    assert lines[0].startswith("\x1b[1mtopic")
    assert lines[1] == "TopicA      3  2023-11-14 22:13:20  long long long long lon…"
    assert all(len(line) <= 60 for line in lines[1:])
    assert lines[2].startswith("B          12  2023-11-14 22:13:20  red\\x1b[31m[bold]:smi")


def test_numbers_and_times_are_never_cut(terminal: TerminalText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    rows = [{"n": 1, "store_timestamp": 1_700_000_000_000}, {"n": 2**62, "store_timestamp": 1}] * FIRST_PAGE
    rows[-1] = {"n": -(2**62), "store_timestamp": 1}
    Output(stream=terminal).rows(("n", "store_timestamp"), rows)
    assert "…" not in terminal.getvalue()
    assert str(-(2**62)) in terminal.getvalue()


def test_no_colour_with_no_color(terminal: TerminalText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    Output(stream=terminal).rows(COLUMNS, ROWS)
    assert "\x1b" not in terminal.getvalue()


def test_no_colour_when_piped_even_on_a_colourful_terminal(plain: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    Output(stream=plain).rows(COLUMNS, ROWS)
    assert "\x1b" not in plain.getvalue()


@pytest.mark.parametrize("chosen", FORMATS)
def test_lists_are_streamed(chosen: OutputFormat, plain: io.StringIO) -> None:
    printed_at: list[int] = []

    def endless() -> Iterator[Mapping[str, Any]]:
        for number in range(10 * FIRST_PAGE):
            printed_at.append(plain.tell())
            yield {"n": number}

    assert Output(format=chosen, stream=plain).rows(["n"], endless()) == 10 * FIRST_PAGE
    first = 1 if chosen != "table" else FIRST_PAGE + 1
    assert printed_at[first] > 0
    assert printed_at[-1] > printed_at[first]
    assert len(plain.getvalue().splitlines()) == 10 * FIRST_PAGE + (chosen != "json")


def test_json_lines_hold_every_key_and_no_raw_control(plain: io.StringIO) -> None:
    assert Output(True, stream=plain).rows(["topic"], ROWS) == 2
    lines = plain.getvalue().splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert plain.getvalue().replace("\n", "").isprintable()
    assert "\\u202e" in lines[1]


def test_json_keeps_letters_as_they_are_and_lone_surrogates_apart(plain: io.StringIO) -> None:
    Output(True, stream=plain).record({"body": "中文", "topic": "\udcff"})
    assert plain.getvalue() == '{"body": "中文", "topic": "\\udcff"}\n'


def test_json_wins_over_the_format(plain: io.StringIO) -> None:
    assert Output(True, "csv", stream=plain).is_json
    assert not Output(False, "csv", stream=plain).is_json


@pytest.mark.parametrize("value", [b"raw", float("nan"), object()])
def test_json_never_guesses(value: Any, plain: io.StringIO) -> None:
    with pytest.raises((TypeError, ValueError)):
        Output(True, stream=plain).record({"value": value})


def test_csv_can_be_read_back(plain: io.StringIO) -> None:
    assert Output(format="csv", stream=plain).rows(["topic"], ROWS, all_columns=[*COLUMNS, "keys"]) == 2
    read = list(csv.DictReader(io.StringIO(plain.getvalue())))
    assert [row["store_timestamp"] for row in read] == ["1700000000000", "1700000000001"]
    assert read[0]["keys"] == '["k1", "k2"]'
    assert read[1]["body"] == r"red\x1b[31m[bold]:smile: \u202e"


@pytest.mark.parametrize(("chosen", "expected"), [("table", ""), ("json", ""), ("csv", "topic,n\n")])
def test_an_empty_list(chosen: OutputFormat, expected: str, plain: io.StringIO) -> None:
    assert Output(format=chosen, stream=plain).rows(["topic", "n"], []) == 0
    assert plain.getvalue() == expected


RECORD = {
    "path": "/store\x1b",
    "commitlog": {"files": 2, "file_size": 1 << 30, "last_store_timestamp": 1_700_000_000_000, "deeper": {"a": None}},
    "abort": True,
    "queues_changed": [{"topic": "A", "units": 3}, {"topic": "B", "units": 4}],
    "offsets": [1, 2],
    "nothing": {},
}


def test_a_record_for_people(plain: io.StringIO) -> None:
    Output(stream=plain).record(RECORD)
    assert plain.getvalue().splitlines() == [
        r"path     /store\x1b",
        "commitlog",
        "  files                 2",
        "  file size             1073741824 (1.0 GiB)",
        "  last store timestamp  2023-11-14T22:13:20.000Z (1700000000000)",
        "  deeper",
        "    a  -",
        "abort    yes",
        "queues changed",
        "  topic=A units=3",
        "  topic=B units=4",
        "offsets  1, 2",
        "nothing  -",
    ]


def test_a_record_as_json_is_one_object(plain: io.StringIO) -> None:
    Output(True, stream=plain).record(RECORD)
    assert json.loads(plain.getvalue()) == RECORD
    assert plain.getvalue().count("\n") == 1


def test_a_record_as_csv_is_flat(plain: io.StringIO) -> None:
    Output(format="csv", stream=plain).record(RECORD)
    (row,) = csv.DictReader(io.StringIO(plain.getvalue()))
    assert row["commitlog.file_size"] == str(1 << 30)
    assert row["commitlog.deeper.a"] == ""
    assert json.loads(row["queues_changed"]) == RECORD["queues_changed"]


def test_text_is_sanitised(plain: io.StringIO) -> None:
    out = Output(stream=plain)
    out.text("a\x1b\nb")
    out.text("a\x1b\nb", keep_newlines=True)
    assert plain.getvalue() == "a\\x1b\\nb\na\\x1b\nb\n"


def test_text_under_json_is_still_json(plain: io.StringIO) -> None:
    Output(True, stream=plain).text("a\x1b")
    assert json.loads(plain.getvalue()) == {"text": "a\x1b"}


def test_talk_goes_to_stderr_and_is_sanitised(capsys: pytest.CaptureFixture[str]) -> None:
    Output().talk("topic \x1b[2J\nnext")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "topic \\x1b[2J\\nnext\n"


def test_nobody_needs_to_listen_to_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Broken(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    output.talk("hello")
    monkeypatch.setattr("sys.stderr", None)
    output.talk("hello")


def test_a_closed_pipe_stays_a_closed_pipe() -> None:
    with pytest.raises(BrokenPipeError):
        Output(stream=Broken(BrokenPipeError(errno.EPIPE, "Broken pipe"))).record({"a": 1})


@pytest.mark.parametrize("chosen", FORMATS)
def test_a_full_disk_under_stdout_is_a_write_error(chosen: OutputFormat) -> None:
    with pytest.raises(WriteFailedError, match="standard output"):
        Output(format=chosen, stream=Broken(OSError(errno.ENOSPC, "No space left on device"))).rows(["a"], [{"a": 1}])


def test_a_stdout_that_is_closed_is_a_write_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(WriteFailedError, match="closed"):
        Output(True).record({"a": 1})


def test_one_huge_cell_does_not_pad_the_others(plain: io.StringIO) -> None:
    Output(stream=plain).rows(["body", "n"], [{"body": "x" * 100_000, "n": 1}, {"body": "y", "n": 2}])
    assert len(plain.getvalue()) < 101_000
