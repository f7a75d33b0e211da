"""What was appended is dispatched as columns to the same queues and index as message by message."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import Message
from rmqctl.store import native
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write import appenders as index_batches
from rmqctl.store.write import dispatch as reput
from rmqctl.store.write.dispatch import ColumnDispatch
from tests.goldens import GoldenStore
from tests.store.same_files import MESSAGES, NOW, by_put, files_after, ticking
from tests.store.write.writing import SMALL, copy_store, files_below, golden_config, message, small, stored_messages

GOLDENS = ["clean", "features", "v4-features", "lmq", "innerbatch", "propcrc", "longtopic", "broker-real"]


def as_columns(patch: pytest.MonkeyPatch) -> None:
    """Have everything dispatched as columns, however little it is."""
    patch.setattr(reput, "_COLUMNS_FROM", 0)
    patch.setattr(reput, "_COLUMNS_AFTER", -1)
    patch.setattr(index_batches, "_FEW", 1)


def derived(root: Path) -> dict[str, bytes]:
    """Queues, index and checkpoint."""
    return {name: data for name, data in files_below(root).items() if not name.startswith(("commitlog", "lock"))}


@pytest.mark.parametrize("name", GOLDENS)
def test_copies_of_goldens(
    name: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, config = golden_store(name), golden_config(name)
    copy_store(source, tmp_path / "plain", config)
    as_columns(monkeypatch)
    copy_store(source, tmp_path / "columns", config)
    found = derived(tmp_path / "columns")
    assert len(found) > 3
    assert found == derived(tmp_path / "plain")


@settings(
    max_examples=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(MESSAGES)
def test_any_messages(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = files_after(Path(folder, "plain"), messages, by_put, SMALL)
        with pytest.MonkeyPatch.context() as patch:
            as_columns(patch)
            assert files_after(Path(folder, "columns"), messages, by_put, SMALL) == plain


def test_columns_and_messages_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index file whose slots are open gets single entries too."""
    as_columns(monkeypatch)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for number in range(300):
            store.put(message(number, properties={"KEYS": f"a{number} b{number}"}))
            if number % 50 == 0:
                store.wait_for_dispatch()
                monkeypatch.setattr(reput, "_COLUMNS_FROM", (number // 50 % 2) << 40)
        store.wait_for_dispatch()
        for number in (0, 60, 149, 299):
            (found,) = store.query("TopicA", f"b{number}").messages
            assert len(found.body) == number
    MessageStore.open(tmp_path / "s", "rw", SMALL, full_check=True).close()


def note_calls(patch: pytest.MonkeyPatch, kind: type, name: str, noted: list[str]) -> None:
    """Have the calls of a method noted by its name."""
    method = getattr(kind, name)

    def noting(*given: object) -> object:
        noted.append(name)
        return method(*given)

    patch.setattr(kind, name, noting)


def test_it_is_their_number_that_makes_messages_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of a hundred bytes as well as some of many; and of few there is nothing to gain, however large they are."""
    monkeypatch.setattr(reput, "_COLUMNS_AFTER", -1)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        assert store._writer is not None
        follower = store._writer._follower
        follower.stop()
        ways: list[str] = []
        for name, kind in (("dispatch", ColumnDispatch), ("_dispatch", reput.Follower)):
            note_calls(monkeypatch, kind, name, ways)
        for length, count, way in (
            (10, 7, "_dispatch"),
            (10, 9, "dispatch"),
            (3000, 7, "_dispatch"),
            (3000, 9, "dispatch"),
        ):
            for number in (1, count):  # the first says how large they are by now
                ways.clear()
                for _ in range(number):
                    store.put(message(length))
                follower.dispatch_all()
            assert ways[0] == way, (length, count)
        assert follower.position == store.files.log.max_offset


def test_few_messages_are_no_columns_and_none_are_where_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "few", "rw", SMALL, create=True) as store:
        store.put(message())
        store.wait_for_dispatch()
        assert store._writer is not None
        assert store._writer._follower._columns is None
    as_columns(monkeypatch)
    monkeypatch.setattr(native, "is_compiled", lambda: False)
    with MessageStore.open(tmp_path / "plain", "rw", SMALL, create=True) as store:
        store.put(message())
        store.wait_for_dispatch()
        queue = store.files.queues.find("TopicA", 0)
        assert queue is not None
        assert queue.max_offset == 1


def test_what_reads_back_damaged_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_columns(monkeypatch)
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    store.put(message())
    store.wait_for_dispatch()
    assert store._writer is not None
    follower = store._writer._follower
    follower.stop()
    end = store.files.log.max_offset
    store.put(message())
    (file,) = (tmp_path / "s" / "commitlog").iterdir()
    with file.open("r+b") as opened:
        opened.seek(end + 28)
        opened.write(b"\xff")
    with pytest.raises(CorruptError, match="reads back damaged") as caught:
        follower.dispatch_all()
    assert caught.value.physical_offset == end
    store._writer._state.fail(caught.value)
    with pytest.raises(CorruptError):
        store.close()
    assert len(stored_messages(tmp_path / "s")) == 1


def test_what_columns_leave_over_several_files_is_what_messages_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues, index and checkpoint: also where a file of the log ends behind an index file that became full."""
    for name in ("plain", "columns"):
        if name == "columns":
            as_columns(monkeypatch)
        clock = ticking()
        with MessageStore.open(tmp_path / name, "rw", SMALL, create=True, clock=clock) as store:
            follower = store._writing._follower
            follower.stop()
            for number in range(230):
                properties = {"KEYS": f"a{number} b{number}"}
                one = message(500, queue_id=number % 3, properties=properties, born_timestamp=NOW)
                store.put(one._replace(store_timestamp=NOW + number), as_stored=True)
            while follower.dispatch_all():
                pass
    found = derived(tmp_path / "columns")
    assert found == derived(tmp_path / "plain")
    assert len([name for name in found if name.startswith("index/")]) == 2


def test_queues_that_columns_wrote_to_are_flushed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_columns(monkeypatch)
    synced: set[str] = set()

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync":
            synced.add(path)

    config = small(flush_interval_consume_queue=10**8, flush_interval_commit_log=10**8)
    told: list[set[tuple[str, int]]] = []
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        store.tell_arrivals(lambda queues: told.append(set(queues)))
        for queue_id in (0, 1):
            store.put(message(queue_id=queue_id))
        store.wait_for_dispatch()
        assert set().union(*told) == {("TopicA", 0), ("TopicA", 1)}
        monkeypatch.setattr(io, "observer", look)
        store.flush()
        monkeypatch.setattr(io, "observer", None)
    queues = {f"{tmp_path}/s/consumequeue/TopicA/{queue_id}/{0:020}" for queue_id in (0, 1)}
    assert queues <= synced
