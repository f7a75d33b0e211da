"""A stream over several stores: each has its own position, and what happens to one changes nothing for the others."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from rmqctl.formats.errors import NotAStoreError, UnreadableError, UsageError
from rmqctl.pipeline.spark.history import Position, positions_as_json, positions_from_json
from tests.pipeline.growing import FILE_SIZE, Writer
from tests.pipeline.streams.querying import Query, all_of, through_json
from tests.quick import examples

Brokers = Callable[..., list[Writer]]


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    """So many stores, broker-a, broker-b and so on, each with its own messages."""

    def made(*counts: int) -> list[Writer]:
        writers = []
        for number, count in enumerate(counts):
            # no two brokers have a message in common
            writers.append(Writer(tmp_path / f"broker-{'abcdef'[number]}", clock=1_700_000_000_000 + number * 10**6))
            writers[-1].put_many(count)
        return writers

    return made


def test_each_store_has_its_position(brokers: Brokers) -> None:
    writers = brokers(60, 20, 1)
    query = Query(writers)
    assert query.go_on() == all_of(writers)
    assert query.position.keys() == {"stores"}
    assert query.position["stores"].keys() == {str(writer.store) for writer in writers}
    writers[1].put_many(7)
    assert query.go_on() == all_of(writers[1:2], 20)
    assert query.go_on() == []
    assert query.reader.reportLatestOffset() == {
        "stores": {str(writer.store): {"physical_offset": writer.position} for writer in writers}
    }


def test_what_limits_a_batch_is_shared(brokers: Brokers) -> None:
    """A log that is at its end leaves its share to the others, and no batch has more than it may."""
    writers = brokers(200, 200, 5)
    query = Query(writers)
    counts, found = [], []
    while (end := query.plan(ReadMaxRows(50))) != query.position:
        batch = query.carry_out(end)
        found += batch
        counts.append([sum(store == str(writer.store) for store, _ in batch) for writer in writers])
    assert sorted(found) == all_of(writers)
    assert {sum(one) for one in counts[:-1]} == {50}
    assert counts[0][2] == 5
    assert all(abs(one[0] - one[1]) <= 5 for one in counts)


def test_bytes_are_shared_and_no_store_starves(brokers: Brokers) -> None:
    writers = brokers(100, 100, 100)
    query = Query(writers, max_bytes="3000")
    begun = query.position["stores"]
    end = query.plan(ReadMaxBytes(3000))["stores"]
    assert [end[name]["physical_offset"] - begun[name]["physical_offset"] for name in end] == [1000, 1000, 1000]
    # fewer messages than stores: they take turns
    query, seen = Query(writers), []
    for _ in range(6):
        seen += query.carry_out(query.plan(ReadMaxRows(1)))
    assert sorted(seen) == sorted((str(writer.store), offset) for writer in writers for offset in writer.offsets[:2])


def test_both_limits_hold(brokers: Brokers) -> None:
    writers = brokers(100, 100)
    query = Query(writers, max_messages="20", max_bytes="100k")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(20)
    assert len(query.carry_out(query.plan(ReadMaxRows(20)))) == 20
    query.restart(writers, max_messages="20", max_bytes="600")
    assert len(query.carry_out(query.plan(ReadMaxRows(20)))) < 8
    assert query.go_on()[-1] == all_of(writers)[-1]


def test_one_that_was_cut_back_fails_and_the_others_lose_nothing(brokers: Brokers) -> None:
    writers = brokers(300, 50)
    query = Query(writers)
    query.go_on()
    before = query.position
    writers[0].cut(writers[0].offsets[220])
    new = writers[0].put_many(200)
    writers[1].put_many(10)
    with pytest.raises(UnreadableError, match=rf"{writers[0].store}: .*was cut back since"):
        query.go_on()
    assert query.position == before
    query.restart(writers, on_changed_log="fork")
    end = query.plan()
    notices = {name: one.get("notice") for name, one in end["stores"].items()}
    assert "was cut back since" in notices.pop(str(writers[0].store))
    assert list(notices.values()) == [None]
    found = query.carry_out(end)
    assert [one for one in found if one[0] == str(writers[1].store)] == all_of(writers[1:], 50)
    assert [offset for store, offset in found if store == str(writers[0].store)][-200:] == new
    assert query.go_on() == []


def test_removed_unread_of_one_store(brokers: Brokers) -> None:
    writers = brokers(300, 10)
    query = Query(writers)
    writers[0].clean(FILE_SIZE)
    with pytest.raises(UnreadableError, match=rf"{writers[0].store}: messages from 0 to {FILE_SIZE} were removed"):
        query.go_on()
    query.restart(writers, fail_on_data_loss="false")
    assert query.go_on() == [one for one in all_of(writers) if one[0] == str(writers[1].store) or one[1] >= FILE_SIZE]


@pytest.mark.parametrize(("options", "first"), [({}, 0), ({"new_stores": "latest"}, 30)])
def test_a_store_that_is_added(
    brokers: Brokers, options: dict[str, str], first: int, caplog: pytest.LogCaptureFixture
) -> None:
    writers = brokers(20, 30)
    query = Query(writers[:1], startingOffsets="latest")
    writers[0].put_many(4)
    query.restart(writers, startingOffsets="latest", **options)
    with caplog.at_level(logging.WARNING):
        end = query.plan()
    assert end["stores"][str(writers[1].store)]["notice"].startswith("was not read before: the query begins there at ")
    assert f"{writers[1].store}: was not read before" in caplog.text
    # carried out twice, as after a crash
    start = query.position
    found = query.carry_out(end)
    query.position = start
    assert query.carry_out(end) == found == all_of(writers[:1], 20) + all_of(writers[1:], first)
    writers[1].put_many(3)
    assert query.go_on() == all_of(writers[1:], 30)


def test_a_store_that_is_taken_away(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    writers = brokers(20, 30)
    query = Query(writers)
    query.go_on()
    writers[0].put_many(2)
    writers[1].put_many(3)
    query.restart(writers[:1])
    with pytest.raises(UnreadableError, match=f"{writers[1].store}: was read up to .* is not among the stores"):
        query.go_on()
    query.restart(writers[:1], fail_on_data_loss="false")
    with caplog.at_level(logging.WARNING):
        assert query.go_on() == all_of(writers[:1], 20)
    assert f"{writers[1].store}: was read up to" in caplog.text
    # named again it goes on where it was: nothing is lost, nothing comes twice
    query.restart(writers)
    assert query.go_on() == all_of(writers[1:], 30)


def test_a_batch_of_a_store_that_is_taken_away(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    writers = brokers(20, 30)
    query = Query(writers)
    end = query.plan()
    query.restart(writers[:1])
    with pytest.raises(UnreadableError, match="is not among the stores"):
        query.carry_out(end)
    query.restart(writers[:1], fail_on_data_loss="false")
    with caplog.at_level(logging.WARNING):
        assert query.carry_out(end) == all_of(writers[:1])
    assert "leaves out what it was about to read of it" in caplog.text


def test_a_store_that_was_moved_is_found_again(brokers: Brokers) -> None:
    """By its messages, whatever it is called now; also by a batch that was planned under its old name."""
    writers = brokers(20, 30)
    query = Query(writers)
    query.go_on()
    writers[1].put_many(5)
    end = query.plan()
    moved = Writer(writers[1].store.with_name("elsewhere"))
    shutil.rmtree(moved.store)
    shutil.move(writers[1].store, moved.store)
    query.restart([writers[0], moved])
    assert query.carry_out(end) == [(str(moved.store), offset) for offset in writers[1].offsets[30:]]
    assert query.go_on() == []
    assert query.position["stores"].keys() == {str(writers[0].store), str(moved.store)}
    moved.position, moved.offsets = writers[1].position, list(writers[1].offsets)
    moved.put_many(2)
    assert query.go_on() == all_of([moved], 35)


def test_a_checkpoint_of_one_store_goes_on_with_several(brokers: Brokers) -> None:
    writers = brokers(40, 30)
    query = Query(str(writers[1].store))
    assert query.go_on() == all_of(writers[1:])
    assert query.position.keys() == {"physical_offset", "history"}
    writers[1].put_many(2)
    query.restart(writers)
    assert query.go_on() == all_of(writers[:1]) + all_of(writers[1:], 30)
    # and back to one
    writers[1].put_many(2)
    query.restart(str(writers[1].store), fail_on_data_loss="false")
    assert query.go_on() == all_of(writers[1:], 32)


def test_a_checkpoint_of_a_store_that_is_not_known_again(brokers: Brokers) -> None:
    writers = brokers(40, 30)
    query = Query(str(writers[1].store))
    query.go_on()
    writers[1].cut(writers[1].offsets[20])
    query.restart(writers)
    with pytest.raises(UsageError, match="the checkpoint is of a query over one store, and of the 2"):
        query.go_on()
    # one whose offset is all that it says
    query.position = {"physical_offset": writers[1].position}
    query.restart(writers)
    with pytest.raises(UsageError, match="none, or more than one"):
        query.go_on()


def test_a_pattern_finds_brokers_as_they_come(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    writers = brokers(20)
    query = Query(str(writers[0].store.parent / "broker-*"))
    assert query.go_on() == all_of(writers)
    (writers[0].store.parent / "broker-b").mkdir()  # about to become one
    with caplog.at_level(logging.WARNING):
        assert query.go_on() == []
    assert "broker-b: the directory is empty: it is looked at again" in caplog.text
    later = Writer(writers[0].store.parent / "broker-b", clock=1)
    later.put_many(9)
    assert query.go_on() == all_of([later])
    shutil.rmtree(later.folder)
    with pytest.raises(NotAStoreError, match="broker-b: the directory is empty"):
        query.go_on()


def test_the_ends_are_kept_for_what_is_available_now(brokers: Brokers) -> None:
    writers = brokers(20, 30, 10)
    query = Query(str(writers[0].store.parent / "broker-[ab]"))
    query.restart(str(writers[0].store.parent / "broker-*"))
    shutil.move(writers[2].store, writers[0].store.parent / "away")
    query.reader.prepareForTriggerAvailableNow()
    shutil.move(writers[0].store.parent / "away", writers[2].store)
    wanted = all_of(writers[:2])
    writers[0].put_many(5)
    assert query.go_on() == wanted
    query.reader.prepareForTriggerAvailableNow()
    assert query.go_on() == all_of(writers[:1], 20) + all_of(writers[2:])


def test_positions_of_another_source_are_refused() -> None:
    for content in ({"stores": 7}, {"stores": {"/a": 7}}, {"stores": {"/a": {"offset": 7}}}, {"offset": 7}):
        with pytest.raises(UsageError, match="the checkpoint holds"):
            positions_from_json(content)
    positions = {"/a": Position(7), "/b": Position(9, None, 3, "so")}
    assert positions_from_json(through_json(positions_as_json(positions))) == positions


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_no_message_is_lost_whatever_happens(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Appends, cuts, cleanings, stores taken away and named again, restarts, batches of any size in any order."""
    folder = tmp_path_factory.mktemp("any")
    writers = [Writer(folder / name, clock=1_700_000_000_000 + number * 10**6) for number, name in enumerate("abc")]
    epochs: dict[tuple[str, int], int] = {}
    for writer in writers:
        writer.put()
        epochs |= dict.fromkeys(all_of([writer]), 0)
    options = {"on_changed_log": "fork", "fail_on_data_loss": "false"}
    query = Query(writers, **options)
    taken: dict[tuple[str, int], int] = {}
    times: dict[tuple[str, int, int], int] = {}
    were_cut: set[str] = set()

    def carry_out(end: dict[str, Any]) -> None:
        for one in query.carry_out(end):
            taken[one] = epochs[one]
            times[*one, epochs[one]] = times.get((*one, epochs[one]), 0) + 1

    steps = st.lists(st.tuples(st.sampled_from("pppprrrcns"), st.integers(0, 2), st.integers(0, 1000)), max_size=25)
    for epoch, (step, which, number) in enumerate(data.draw(steps), start=1):
        writer = writers[which]
        if step == "p":
            epochs |= {(str(writer.store), offset): epoch for offset in writer.put_many(number % 60)}
        elif step == "r":
            limits = (ReadAllAvailable(), ReadMaxBytes(1 + number * 20), ReadMaxRows(1 + number % 50))
            carry_out(query.plan(limits[number % 3]))
        elif step == "c" and len(writer.offsets) > 1:
            writer.cut(writer.offsets[1 + number % (len(writer.offsets) - 1)])
            were_cut.add(str(writer.store))
        elif step == "n":
            query.restart([one for one in writers if one is not writer], **options)
        elif step == "s":
            query.restart(writers, **options)
    query.restart(writers, **options)
    while (end := query.plan(ReadMaxRows(77))) != query.position:
        carry_out(end)
    assert all(taken.get(one) == epochs[one] for one in all_of(writers))
    assert all(count == 1 for (store, _, _), count in times.items() if store not in were_cut)
