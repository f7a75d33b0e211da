"""Recovery of a store whose writer was killed in the middle of creating files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.check.check import check
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.files.layout import file_name
from rmqctl.store.journal.undo import undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.store.write.writing import message


def opened(store: Path) -> StoreFiles:
    return StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent)))


def recovered(store: Path) -> None:
    with opened(store) as files:
        recover(files)


@pytest.mark.parametrize("name", ["crash", "innerbatch"])
def test_a_queue_file_that_never_got_its_size_is_filled(golden_store: GoldenStore, name: str) -> None:
    """A writer that is killed between creating a file and giving it its size leaves one of no bytes."""
    store = golden_store(name)
    recovered(store)
    whole = sorted(path for path in (store / "consumequeue").rglob("0*") if path.is_file())
    queue_files = [path for path in whole if any(path.read_bytes())]
    wanted = {path: path.read_bytes() for path in queue_files}
    for path in queue_files:
        path.write_bytes(b"")
    beyond = [path.with_name(f"{int(path.name) + 40 * len(wanted[path]):020d}") for path in queue_files]
    for path in beyond:
        path.write_bytes(b"")
    before = tree_state(store)
    recovered(store)
    assert {path: path.read_bytes() for path in queue_files} == wanted
    assert not [path for path in beyond if path.exists()]
    with opened(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


# ---- from the finding to a store that takes messages again

Broken = Callable[[Path], list[Path]]


def emptied(pattern: str, *, only_last: bool = False) -> Broken:
    """Has a kill leave files of no bytes."""

    def empty(store: Path) -> list[Path]:
        found = sorted(path for path in store.glob(pattern) if path.is_file())
        for path in found[-1:] if only_last else found:
            path.write_bytes(b"")
        return found[-1:] if only_last else found

    return empty


def first_file_of_all(store: Path) -> list[Path]:
    """The first put into a new store was cut off while it made the commitlog's first file."""
    for path in [*(store / "commitlog").iterdir(), *(store / "index").iterdir(), store / "checkpoint"]:
        path.unlink()
    for queues in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        shutil.rmtree(store / queues, ignore_errors=True)
    (store / "abort").write_text("1")
    (store / "commitlog" / file_name(0)).write_bytes(b"")
    return [store / "commitlog" / file_name(0)]


def next_files_of_the_log(store: Path) -> list[Path]:
    """RocketMQ makes two files ahead."""
    last = max((store / "commitlog").iterdir())
    made = [last.with_name(file_name(int(last.name) + number * last.stat().st_size)) for number in (1, 2)]
    for path in made:
        path.write_bytes(b"")
    (store / "abort").write_text("1")
    return made


def alarms(store: Path) -> set[str]:
    with opened(store) as files:
        return {finding.code for finding in check(files) if finding.severity.is_alarm}


def append(store: Path) -> None:
    config = read_broker_conf(broker_conf(store.name, store.parent))
    with MessageStore.open(store, "rw", config, full_check=True) as opened_store:
        assert opened_store.put(message()).status.is_stored


_CASES = [
    pytest.param(name, broken, marks=line)
    for name, line in (("clean", ()), ("v4-clean", pytest.mark.thorough))
    for broken in (
        first_file_of_all,
        next_files_of_the_log,
        emptied("commitlog/0*", only_last=True),
        emptied("consumequeue/*/0/0*", only_last=True),
        emptied("index/*"),
        emptied("checkpoint"),
    )
] + [
    ("cqext", emptied("consumequeue_ext/*/*/0*")),
    ("v4-cqext", emptied("consumequeue_ext/*/*/0*", only_last=True)),
    ("innerbatch", emptied("batchconsumequeue/*/*/0*", only_last=True)),
]


@pytest.mark.parametrize(("name", "broken"), _CASES)
def test_the_way_from_the_finding_to_a_working_store(golden_store: GoldenStore, name: str, broken: Broken) -> None:
    store = golden_store(name)
    places = broken(store)
    assert places
    if places != [store / "checkpoint"]:  # which a broker takes for a new one, as the tool does
        assert alarms(store)
    before = tree_state(store)
    recovered(store)
    assert not [path for path in places if path.exists() and not path.stat().st_size and path.name != "checkpoint"]
    assert not alarms(store)
    with opened(store) as files:
        if tree_state(store) != before:
            undo(files.layout)
    assert tree_state(store) == before
    recovered(store)
    append(store)
    assert not alarms(store)


@pytest.mark.parametrize("name", ["clean", "v4-clean"])
def test_a_log_of_empty_files_that_queues_point_into_needs_a_decision(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    emptied("commitlog/0*")(store)
    before = tree_state(store)
    with opened(store) as files, pytest.raises(RefusedError, match="commitlog files have 0 bytes, but 41 queues"):
        recover(files)
    before["."] = tree_state(store)["."]
    assert tree_state(store) == before
    with opened(store) as files:
        recover(files, cut=True)
    assert not list((store / "commitlog").iterdir())
    append(store)
    assert not alarms(store)


def test_rebuild_moves_empty_ext_files_of_its_topics_away(golden_store: GoldenStore) -> None:
    store = golden_store("cqext")
    places = emptied("consumequeue_ext/*/*/0*")(store)
    topics = sorted({path.parent.parent.name for path in places})
    with opened(store) as files:
        rebuild(files, index=False, topics=topics[:1])
    empty = {path.parent.parent.name for path in places if path.exists() and not path.stat().st_size}
    assert empty == set(topics[1:])
    with opened(store) as files:
        rebuild(files, index=False)
    assert not [path for path in places if path.exists() and not path.stat().st_size]
    assert not alarms(store)


# ---- what a power cut leaves where the first file of the log never reached the disk


@pytest.fixture
def without_log(golden_store: GoldenStore) -> Path:
    store = golden_store("clean")
    for folder in ("commitlog", "consumequeue"):
        shutil.rmtree(store / folder)
        (store / folder).mkdir()
    return store


def alarm_codes(store: Path) -> list[str]:
    with opened(store) as files:
        return [one.code for one in check(files) if one.severity.is_alarm]


def test_an_index_whose_header_is_zeros_goes(without_log: Path) -> None:
    index = next((without_log / "index").iterdir())
    index.write_bytes(bytes(1000))
    recovered(without_log)
    assert not index.exists()
    assert not alarm_codes(without_log)


def test_the_folder_of_a_topic_without_a_queue_points_nowhere(without_log: Path) -> None:
    shutil.rmtree(without_log / "index")
    (without_log / "consumequeue" / "TopicA").mkdir()
    recovered(without_log)
    assert not alarm_codes(without_log)
