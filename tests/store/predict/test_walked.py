"""One walk of the log serves the starts of several versions, and never stands for bytes that have changed since."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import VERSIONS
from rmqctl.store.log.implied import Run
from rmqctl.store.log.parallel import WalkPiece
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import WalkedLog, broker_queues, predict, walked
from rmqctl.store.predict.broker_log import ListedFile, listed_files
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, OF_5_5
from tests.opened import store_path
from tests.quick import goldens_of

# the starts of these are not predicted
_REFUSED = ("rocksdb", "v55-controller")


def _starts(root: Path, shared: WalkedLog | None) -> list[dict[str, Any]]:
    with StoreFiles(root) as files:
        return [asdict(predict(files, version, walked=shared)) for version in VERSIONS]


@pytest.mark.parametrize("name", goldens_of([name for name in (*GOLDENS, *OF_5_5) if name not in _REFUSED]))
def test_versions_that_share_a_walk_find_what_each_finds_alone(name: str) -> None:
    alone = _starts(store_path(name), None)
    shared = WalkedLog()
    assert _starts(store_path(name), shared) == alone
    # and nobody who comes later finds it altered
    assert _starts(store_path(name), shared) == alone


def test_a_file_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    records = WalkPiece.records

    def noted(self: WalkPiece, request: Any) -> Any:
        pieces.append(self.file.start_offset)
        return records(self, request)

    monkeypatch.setattr(WalkPiece, "records", noted)
    shared = WalkedLog()
    with StoreFiles(store_path("clean")) as files:
        predict(files, "5.3.3", walked=shared)
        walks = len(pieces)
        assert walks >= len(files.log.files)
        predict(files, "5.5.0", walked=shared)
    # what lies behind the log's end is looked at by each
    assert len(pieces) - walks <= 1


def test_queues_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand queues that was half of what the starts of three versions cost."""
    listed: list[Path] = []

    def noted(directory: Path) -> list[ListedFile]:
        listed.append(directory)
        return listed_files(directory)

    monkeypatch.setattr(broker_queues, "listed_files", noted)
    _starts(store_path("clean"), WalkedLog())
    assert listed
    assert len(listed) == len(set(listed))


def test_nothing_is_kept_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _starts(store_path("clean"), None)
    monkeypatch.setattr(walked, "_ROOM", 1000)
    assert _starts(store_path("clean"), WalkedLog()) == alone


@pytest.mark.parametrize("name", ["clean", "crash", "lmq", "innerbatch", "v55-clean"])
def test_pieces_of_a_file_are_kept_as_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held apart they would not fit: of many queues each piece has few units."""
    root = store_path(name)
    alone = _starts(root, None)
    monkeypatch.setattr(walked, "PIECE", 16_384)
    shared = WalkedLog()
    with StoreFiles(root) as files:
        shared.use(files.config.delay_levels())
        apart = [part for file in files.log.files for part in shared.alone(files.log, file, 0, None)]
        together = list(shared.all(files.log))
        runs = [_units(parts) for parts in (apart, together)]
    assert runs[0] == runs[1]
    assert _starts(root, shared) == alone
    if name != "lmq":  # whose messages are held whole
        assert len(together) < len(apart)
    monkeypatch.setattr(walked, "_ROOM", 2 * sum(part.size for part in together) + 1)
    pressed = WalkedLog()
    assert _starts(root, pressed) == alone


def _units(parts: list[walked.WalkedPart]) -> tuple[int, dict[tuple[str, int], list[tuple[int, ...]]]]:
    """Messages, and the slots and units of each queue."""
    runs = [record for part in parts for record in part.records if isinstance(record, Run)]
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for queue in (queue for run in runs for queue in run.queues):
        rows = zip(queue.slots.tolist(), queue.units.tolist(), strict=True)
        found.setdefault((queue.topic, queue.queue_id), []).extend((slot, *unit) for slot, unit in rows)
    return sum(run.messages for run in runs), found


def test_messages_that_are_held_whole_count_with_their_bodies() -> None:
    shared = WalkedLog()
    with StoreFiles(store_path("lmq")) as files:
        shared.use(files.config.delay_levels())
        for part in shared.all(files.log):
            runs = [record for record in part.records if isinstance(record, Run)]
            held = sum(len(message.body) + len(message.property_bytes) for run in runs for _, message in run.special)
            units = sum(len(queue.slots) for run in runs for queue in run.queues)
            assert held > 1000
            assert part.size > held + units * 20


def test_what_was_written_meanwhile_is_walked(tmp_path: Path) -> None:
    root, config = tmp_path / "s", StoreConfig(mapped_file_size_commit_log=1 << 20)
    with MessageStore.open(root, "rw", config, create=True) as store:
        store.put(Message("T", b"body"))
    shared = WalkedLog()
    with MessageStore.open(root, "r", config) as store:
        before = store.predict("5.5.0", walked=shared)
    with MessageStore.open(root, "rw", config) as store:
        store.put(Message("T", b"body"))
        end = store.files.log.max_offset
    with MessageStore.open(root, "r", config) as store:
        after = store.predict("5.5.0", walked=shared)
        assert (after.end_offset, after.messages_unqueued) == (end, 0)
    assert before.end_offset is not None
    assert before.end_offset < end
