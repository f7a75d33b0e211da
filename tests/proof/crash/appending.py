"""Appending, in every way: what was acknowledged is there, and of the rest nothing but the end is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.proof.crash.state import Acknowledged, State, check_checkpoint, check_closed, recovered
from tests.store.journal.commands import CONFIG
from tests.store.write.writing import message

Tell = Callable[[object], None]
NOW = 1_700_000_000_000

SYNC = CONFIG._replace(flush_disk_type="SYNC_FLUSH", flush_interval_consume_queue=60_000)
ASYNC = CONFIG._replace(flush_interval_commit_log=60_000, flush_interval_consume_queue=60_000)
POOL = ASYNC._replace(transient_store_pool_enable=True, commit_interval_commit_log=60_000)


def clock() -> Callable[[], int]:
    """Every message gets a time of its own, so that a checkpoint names some and not others."""
    return iter(range(NOW, 1 << 62, 5000)).__next__


def open_store(root: Path, config: StoreConfig) -> MessageStore:
    """For writing; with no thread that nobody waits for."""
    return MessageStore.open(root, "rw", config, create=True, allocate_ahead=False, clock=clock())


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
    tell(Acknowledged(last))


def check_appended(state: State) -> None:
    """What has to hold after a cut at any moment."""
    acknowledged = [note for note in state.history.notes(state.cut.after) if isinstance(note, Acknowledged)]
    until = acknowledged[-1].physical_offset if acknowledged else -1
    check_checkpoint(state.root, state.after, state.config)
    check_closed(state.root, state.config)
    found = recovered(state.root, state.config)
    missing = [one for one in state.after if one.physical_offset <= until and one not in found]
    assert not missing, f"{len(missing)} acknowledged messages are gone, the first at {missing[0].physical_offset}"
    assert found == state.after[: len(found)], "what is lost is a hole, not the end"
