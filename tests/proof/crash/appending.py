"""Appending, in every way: what was acknowledged is there, and of the rest nothing but the end is missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import is_directory
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.bridge import recover_bridging
from tests.proof.crash.state import Acknowledged, State, check_checkpoint, check_closed, cut, in_log, recovered
from tests.store.journal.commands import CONFIG
from tests.store.write.writing import message

Tell = Callable[[object], None]
LATER = 2_500_000_000_000
"""Behind the times (ms) of whatever a store has already."""

SYNC = CONFIG._replace(flush_disk_type="SYNC_FLUSH", flush_interval_consume_queue=60_000)
ASYNC = CONFIG._replace(flush_interval_commit_log=60_000, flush_interval_consume_queue=60_000)
POOL = ASYNC._replace(transient_store_pool_enable=True, commit_interval_commit_log=60_000)


def open_store(root: Path, config: StoreConfig) -> MessageStore:
    """For writing; with no thread that nobody waits for. Every message gets a time of its own, later than all before,
    so that a checkpoint names some and not others."""
    stored = in_log(root, config) if is_directory(root) else []
    times = itertools.count(max(LATER, *(one.store_timestamp + 5000 for one in stored), 0), 5000)
    return MessageStore.open(root, "rw", config, create=True, allocate_ahead=False, clock=times.__next__)


def append_one_by_one(root: Path, tell: Tell, config: StoreConfig, count: int = 30) -> None:
    """One after the other into two queues, past the ends of files of log and queues; with a flush now and then where
    a put does not wait for one."""
    with open_store(root, config) as store:
        last = -1
        for number in range(count):
            keys = {"KEYS": f"k{number}"}
            result = store.put(message(600, topic="T", queue_id=number % 2, properties=keys))
            assert result.status.is_stored, result
            assert result.physical_offset is not None
            last = result.physical_offset
            if config.flush_disk_type == "SYNC_FLUSH":
                tell(Acknowledged(last))
            elif number % 7 == 3:
                store.flush()
                tell(Acknowledged(last))


def append_many(root: Path, tell: Tell, config: StoreConfig) -> None:
    """So many at once that it is done with arrays, and a batch; each call past the end of a file."""
    with open_store(root, config) as store:
        for turn in range(3):
            keys = {"KEYS": f"k{turn}"}
            messages = [message(100, topic="T", queue_id=number % 2, properties=keys) for number in range(64)]
            results = store.put_many(messages)
            assert all(result.status.is_stored for result in results)
            if turn != 1 or config.flush_disk_type == "SYNC_FLUSH":
                store.flush()
                tell(Acknowledged(results[-1].physical_offset or 0))


def append_columns(root: Path, tell: Tell, config: StoreConfig) -> None:
    """Rows and columns, past the ends of files."""
    import pyarrow

    rows = 40
    columns = {
        "topic": pyarrow.array([f"T{number % 2}" for number in range(rows)]),
        "body": pyarrow.array([b"b" * 200] * rows, pyarrow.binary()),
        "keys": pyarrow.array([[f"k{number}"] for number in range(rows)]),
    }
    with open_store(root, config) as store:
        for _ in range(2):
            store.put_columns(pyarrow.RecordBatch.from_pydict(columns))
            store.flush()
            tell(Acknowledged(in_log(root, config)[-1].physical_offset))


def check_appended(state: State) -> None:
    """What has to hold after a cut at any moment. Whatever was in the store is acknowledged.

    Pages that were not flushed reach the disk in any order, so there may be good messages behind lost ones, none of
    them acknowledged. `recover` asks what to do then: with --cut all but the end is there, and --bridge keeps them too.
    """
    until = max((note.physical_offset for note in state.notes if isinstance(note, Acknowledged)), default=-1)
    until = max(until, state.before[-1].physical_offset if state.before else -1)
    check_checkpoint(state.root, state.after, state.config)
    check_closed(state.root, state.config)
    bridges = state.random.random() < 0.5
    found = recovered(state.root, state.config, damaged=recover_bridging if bridges else cut)
    missing = [one for one in state.after if one.physical_offset <= until and one not in found]
    assert not missing, f"{len(missing)} acknowledged messages are gone, the first at {missing[0].physical_offset}"
    # fillers stand where messages were, and say so
    assert bridges or found == state.after[: len(found)], "what is lost is a hole, not the end"
    assert not state.is_done or found == state.after, "a closed store has lost messages"
