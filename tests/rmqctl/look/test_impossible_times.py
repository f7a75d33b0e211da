"""A flipped bit in a store time, which no checksum covers, hides no message: it is listed, or reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.read.frames import message_at
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.rmqctl.looking import Done, run
from tests.store.check.breaking import put_field

COMMITTED, DEAD, DELAYED, TIMED, EVENT = 88180, 150923, 144918, 77513, 34682
"""Physical offsets in broker-real: the committed copy of a half message, a dead letter, and so on."""
_MOVING = ("age_ms", "first_due_timestamp", "last_due_timestamp", "detail", "last_attempt_timestamp", "store_timestamp")
LISTINGS = {
    "halves": ("halves",),
    "dlq": ("dlq", "list", "-g", "g-retry"),
    "redrive": ("dlq", "redrive", "-g", "g-retry", "--dry-run"),
    "delays": ("delays",),
    "undelivered": ("delays", "--undelivered"),
    "cat": ("cat", "--columns", "physical_offset"),
    "count": ("stats", "--by", "topic"),
}
TIMES = ("-b", "2026-01-01", "-e", "2027-12-31")


def _run(store: Path, *words: str) -> Done:
    verb = words[:2] if words[0] in ("dlq", "offsets") else words[:1]
    return run(*verb, "-s", store, *words[len(verb) :], "--json")


def _rows(done: Done, *kept: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in _MOVING} for row in done.objects]


def _flip(store: Path, physical_offset: int, bit: int) -> None:
    with StoreFiles(store) as files:
        time = message_at(files.log, physical_offset).store_timestamp
    flipped = time ^ (1 << bit) if bit < 63 else time - (1 << 63)
    put_field(store, physical_offset, "store_timestamp", flipped)


@pytest.mark.parametrize("bit", [63, 62, 45])
@pytest.mark.parametrize("place", [COMMITTED, DEAD, DELAYED, TIMED])
def test_listings_without_times_have_the_same_rows(golden_store: GoldenStore, place: int, bit: int) -> None:
    store = golden_store("broker-real")
    before = {name: _run(store, *words) for name, words in LISTINGS.items()}
    _flip(store, place, bit)
    for name, words in LISTINGS.items():
        after = _run(store, *words)
        assert after.code == before[name].code, name
        if name == "count":
            counts = [{row["topic"]: row["messages"] for row in done.objects} for done in (before[name], after)]
            assert counts[0] == counts[1]
        else:
            assert _rows(after) == _rows(before[name]), name


@pytest.mark.parametrize(
    "words",
    [
        ("cat", *TIMES),
        ("cat", *TIMES, "--order", "queue"),
        ("cat", *TIMES, "-t", "%DLQ%g-retry", "--columns", "topic"),
        ("cat", "-b", "2026-01-01", "--grep", "evt-71"),
        ("cat", *TIMES, "-n", "-500"),
        ("query", "-t", "%DLQ%g-retry", "-k", "evt-71", *TIMES),
        ("dlq", "redrive", "-g", "g-retry", "--dry-run", *TIMES),
        ("dlq", "redrive", "-g", "g-retry", "--dry-run", "--key", "evt-71", "-b", "2026-01-01"),
        ("export", "FILE", *TIMES),
        ("export", "FILE", *TIMES, "--master", "in-process"),
        ("export", "FILE", *TIMES, "--format", "jsonl"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("bit", [63, 45])
def test_a_message_that_only_its_impossible_time_leaves_out_is_reported(
    golden_store: GoldenStore, tmp_path: Path, words: tuple[str, ...], bit: int
) -> None:
    store = golden_store("broker-real")
    filled = [str(tmp_path / "out.parquet") if word == "FILE" else word for word in words]
    sound = _run(store, *filled)
    assert (sound.code, "cannot be right" in sound.err) == (0, False)
    if words[0] == "export":
        filled = [str(tmp_path / "again.parquet") if word == "FILE" else word for word in words]
    _flip(store, DEAD, bit)
    done = _run(store, *filled)
    if bit == 45 and "-e" not in words:
        assert (done.code, "cannot be right" in done.err) == (0, False)  # it is later than the time asked for
        return
    assert done.code in (1, 7), done.err
    assert done.err.count(f"at offset {DEAD}: the store time ") == 1
    assert "whether the message is between the given times is unknown" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("cat", *TIMES, "-t", "Events"),
        ("cat", *TIMES, "--grep", "nothing like it"),
        ("dlq", "redrive", "-g", "g-retry", "--dry-run", "--key", "evt-95", *TIMES),
    ],
    ids=" ".join,
)
def test_one_that_something_else_leaves_out_is_not(golden_store: GoldenStore, words: tuple[str, ...]) -> None:
    store = golden_store("broker-real")
    _flip(store, DEAD, 63)
    assert "cannot be right" not in _run(store, *words).err
