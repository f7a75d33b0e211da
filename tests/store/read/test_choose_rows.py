"""Rows that are chosen by their columns are the messages that are meant one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native.tables import Columns
from rmqctl.store.read.filter import Criteria, TopicFilter
from rmqctl.store.read.row_filter import KEY_NEEDS, RowChooser
from rmqctl.store.store_files import StoreFiles
from tests.opened import reader
from tests.store.write.writing import SMALL, message


def _messages(log: MappedFileQueue) -> list[StoredMessage]:
    return [record for record in walk(log) if isinstance(record, StoredMessage)]


def _batches(log: MappedFileQueue, needs: Columns) -> Iterator[MessageColumns]:
    return (one for one in walk_columns(log, columns=needs) if isinstance(one, MessageColumns))


def _chosen(log: MappedFileQueue, chooser: RowChooser, more: Columns = Columns.NONE) -> list[int]:
    """Physical offsets of the rows, with no more columns than the chooser says it needs and `more`."""
    found: list[int] = []
    for batch in _batches(log, chooser.needs | more):
        rows = chooser.rows(batch)
        found += (batch.physical_offset if rows is None else batch.physical_offset[rows]).tolist()
    return found


def _criteria(name: str) -> list[dict[str, Any]]:
    messages = _messages(reader(name).files.log)
    one, later = messages[3], messages[len(messages) // 2]
    times: dict[str, Any] = {"begin_time": one.store_timestamp, "end_time": later.store_timestamp}
    unique = next(key for row in messages[9:] if (key := row.properties().get("UNIQ_KEY")))
    tags = sorted({tag for row in messages if (tag := row.properties().get("TAGS"))})
    topics = sorted({row.topic for row in messages})
    return [
        {},
        {"topic": topics[0]},
        {"topic": TopicFilter([topics[0], topics[-1]])},
        {"topic": TopicFilter(["*Topic*", topics[0]])},
        {"topic": TopicFilter(system_topics=False)},
        {"queue_id": 0},
        {"queue_id": one.queue_id, **times, "grep": "."},
        {"begin_time": times["begin_time"]},
        {"end_time": times["end_time"]},
        {"begin_time": one.store_timestamp, "end_time": one.store_timestamp},
        {"begin_time": one.store_timestamp + 1},
        {"end_time": one.store_timestamp - 1},
        {"tags": tags[0]},
        {"tags": f"{tags[0]} || {tags[-1]}"},
        {"tags": "Aa"},
        {"key": unique},
        {"key": unique, "grep": "nothing of the kind"},
        {"key": unique, "tags": "nobody's"},
        {"key": "none", "tags": tags[0]},
        {"grep": "1"},
        {"grep": "1", "tags": tags[0]},
        {"grep": "UNIQ_KEY=", "topic": topics[-1]},
    ]


@pytest.mark.parametrize("name", ["features", "clean"])
def test_the_rows_are_the_messages_that_are_meant(name: str) -> None:
    log = reader(name).files.log
    messages = _messages(log)
    some = 0
    for chosen in _criteria(name):
        criteria = Criteria(**chosen)
        expected = [one.physical_offset for one in messages if criteria.matches(one)]
        assert _chosen(log, RowChooser(criteria)) == expected, chosen
        some += 0 < len(expected) < len(messages)
        for begin in (messages[5].physical_offset, messages[5].physical_offset + 1):
            behind = [offset for offset in expected if offset >= begin]
            assert _chosen(log, RowChooser(criteria, begin)) == behind, (chosen, begin)
            # columns that others asked for make no difference
            assert _chosen(log, RowChooser(criteria, begin), Columns.ALL) == behind, (chosen, begin)
    assert some > 10


@pytest.mark.parametrize(
    ("chosen", "needs"),
    [
        ({}, Columns.NONE),
        ({"topic": "T"}, Columns.TOPIC),
        ({"topic": TopicFilter(system_topics=False)}, Columns.TOPIC),
        ({"queue_id": 0}, Columns.HEAD),
        ({"begin_time": 0}, Columns.HEAD),
        ({"end_time": 0}, Columns.HEAD),
        ({"queue_id": 1, "begin_time": 0, "end_time": 9, "grep": "."}, Columns.HEAD),
        ({"tags": "a"}, Columns.TAGS),
        ({"tags": "*"}, Columns.NONE),
        ({"key": "k"}, KEY_NEEDS),
    ],
)
def test_no_more_columns_are_made_than_are_looked_at(chosen: dict[str, Any], needs: Columns) -> None:
    assert RowChooser(Criteria(**chosen)).needs == needs


def test_tags_and_keys_of_the_same_hash_are_told_apart(tmp_path: Path) -> None:
    """ "Aa" and "BB" have one hash in Java; an empty tag has the hash of none."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for word in ("Aa", "BB", "Aa BB", "c"):
            store.put(message(20, properties={"KEYS": word, "TAGS": word}))
        store.put(message(20))
        store.put(message(20, topic="TopicB", properties={"KEYS": "Aa", "TAGS": "BB"}))
        # a rolled back message has no index entry, and its keys all the same
        store.put(message(20, sys_flag=0xC, properties={"KEYS": "Aa"}))
    with StoreFiles(tmp_path / "s") as files:
        messages = _messages(files.log)
        assert len(messages) == 7
        for chosen, rows in (
            ({"tags": "Aa"}, [0]),
            ({"tags": "BB"}, [1, 5]),
            ({"tags": "Aa || c"}, [0, 3]),
            ({"key": "Aa"}, [0, 2, 5, 6]),
            ({"key": "BB"}, [1, 2]),
            ({"key": "Aa", "topic": "TopicB"}, [5]),
            ({"key": "Aa", "tags": "BB"}, [5]),
            ({"key": "c", "tags": "c"}, [3]),
        ):
            criteria = Criteria(**chosen)  # type: ignore[arg-type]  # names of its parameters
            expected = [messages[row].physical_offset for row in rows]
            assert [one.physical_offset for one in messages if criteria.matches(one)] == expected, chosen
            for more in (Columns.NONE, Columns.ALL):
                assert _chosen(files.log, RowChooser(criteria), more) == expected, chosen


def test_all_rows_are_told_without_a_list_of_them() -> None:
    log = reader("features").files.log
    [begin, *_] = [one.physical_offset for one in _messages(log)]
    for criteria in (Criteria(), Criteria(begin_time=0), Criteria(TopicFilter(["*"]))):
        for first in (0, begin):
            chooser = RowChooser(criteria, first)
            assert all(chooser.rows(batch) is None for batch in _batches(log, chooser.needs))


def test_a_message_that_changed_since_the_walk_is_left_to_who_reads_it(tmp_path: Path) -> None:
    """Who reads it tells of it; to pass it over would hide it."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        places = [store.put(message(20)).physical_offset or 0 for _ in range(3)]
    with StoreFiles(tmp_path / "s") as files:
        chooser = RowChooser(Criteria(grep="(nothing of the kind)"))
        [batch] = _batches(files.log, chooser.needs)
        assert chooser.rows(batch).tolist() == []  # type: ignore[union-attr]  # some are not meant
        (path,) = (tmp_path / "s" / "commitlog").iterdir()
        data = bytearray(path.read_bytes())
        data[places[1] : places[1] + 4] = bytes(4)
        path.write_bytes(bytes(data))
        assert chooser.rows(batch).tolist() == [1]  # type: ignore[union-attr]
