"""A stream over a log that does not stay what it was: cut back, replaced, cleaned, rolled. Nothing is lost unsaid."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.pipeline.spark.options import parse_options, view_schema
from rmqctl.pipeline.spark.stream import MessageStreamReader
from tests.pipeline.growing import FILE_SIZE, Writer
from tests.quick import examples
from tests.store.logs import opened

COLUMNS = ("physical_offset", "queue_offset")


def _reader(writer: Writer, **options: str) -> MessageStreamReader:
    given = parse_options({"path": str(writer.store), "columns": ",".join(COLUMNS), **options})
    return MessageStreamReader(given, view_schema("messages", COLUMNS))


class Query:
    """What Spark does with a reader: positions through JSON, a batch planned, read and committed."""

    def __init__(self, reader: MessageStreamReader) -> None:
        self.reader = reader
        self.position: dict[str, Any] = _through_json(reader.initialOffset())
        self.read: list[int] = []

    def plan(self, limit: ReadLimit | None = None) -> dict[str, Any]:
        return _through_json(self.reader.latestOffset(self.position, limit or ReadAllAvailable()))

    def carry_out(self, end: dict[str, Any]) -> list[int]:
        found: list[int] = []
        for partition in self.reader.partitions(self.position, end):
            for batch in self.reader.read(partition):
                found += batch.column("physical_offset").to_pylist()
        self.position = end
        self.read += found
        return found

    def go_on(self, limit: ReadLimit | None = None) -> list[int]:
        found: list[int] = []
        while (end := self.plan(limit)) != self.position:
            found += self.carry_out(end)
        return found


def _through_json(content: object) -> dict[str, Any]:
    return dict(json.loads(json.dumps(content)))


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "store")


def _cut_and_grown(writer: Writer, **options: str) -> tuple[Query, int, list[int]]:
    """A query at the end of 300 messages, of which the last 80 were cut off; 200 others followed."""
    writer.put_many(300)
    query = Query(_reader(writer, **options))
    assert query.go_on() == writer.offsets
    cut = writer.offsets[220]
    writer.cut(cut)
    return query, cut, writer.put_many(200)


def test_a_log_that_was_cut_back_and_has_grown_again_fails(writer: Writer) -> None:
    query, cut, _ = _cut_and_grown(writer)
    before = query.position["physical_offset"]
    with pytest.raises(UnreadableError) as raised:
        query.go_on()
    said = str(raised.value)
    assert f"read up to {before} and was cut back" in said
    assert f"ends at {writer.position} now" in said
    assert "Go on at" in said
    assert 'option("on_changed_log", "fork")' in said
    assert str(writer.store) in said
    common = int(said.partition("the same up to ")[2].partition(" ")[0])
    assert cut - (before - cut) <= common <= cut


@pytest.mark.parametrize("options", [{"on_changed_log": "fork"}, {"fail_on_data_loss": "false"}])
@pytest.mark.parametrize("limit", [None, 3000])
def test_a_query_may_go_on_where_the_histories_part(
    writer: Writer, options: dict[str, str], limit: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    query, _, new = _cut_and_grown(writer, **options)
    with caplog.at_level(logging.WARNING):
        found = query.go_on(ReadMaxBytes(limit) if limit else None)
    assert found[-len(new) :] == new
    # what comes again is less than what was cut off
    again = found[: -len(new)]
    assert again == writer.offsets[:220][220 - len(again) :]
    assert len(again) < 80
    assert any("was cut back since" in record.message and "goes on at" in record.message for record in caplog.records)
    assert query.go_on() == []
    later = writer.put_many(3)
    assert query.go_on() == later


@pytest.mark.parametrize(("where", "wanted"), [("latest", 0), ("earliest", 420)])
def test_a_query_may_go_on_elsewhere(writer: Writer, where: str, wanted: int) -> None:
    query, _, _ = _cut_and_grown(writer, on_changed_log=where)
    assert len(query.go_on()) == wanted
    later = writer.put_many(5)
    assert query.go_on() == later


def test_a_log_that_is_shorter_now_does_not_wait_until_it_has_grown(writer: Writer) -> None:
    writer.put_many(100)
    query = Query(_reader(writer))
    query.go_on()
    writer.cut(writer.offsets[60])
    with pytest.raises(UnreadableError, match="was cut back since"):
        query.go_on()
    writer.cut(0)
    with pytest.raises(UnreadableError, match="has no file now"):
        query.go_on()


def test_going_on_in_a_shorter_log_reads_what_comes(writer: Writer) -> None:
    writer.put_many(100)
    query = Query(_reader(writer, on_changed_log="fork"))
    query.go_on()
    writer.cut(writer.offsets[60])
    again = query.go_on()
    assert again == writer.offsets[60 - len(again) :]
    assert query.go_on() == []
    new = writer.put_many(100)
    assert query.go_on() == new


def test_another_log_in_its_place_is_another_log(writer: Writer) -> None:
    writer.put_many(100)
    query = Query(_reader(writer))
    query.go_on()
    shutil.rmtree(writer.folder)
    other = Writer(writer.store, clock=1_800_000_000_000)
    other.put_many(400)
    with pytest.raises(UnreadableError, match=f"another log.*holds 0 to {other.position} now"):
        query.go_on()
    allowed = Query(_reader(other, on_changed_log="fork"))
    allowed.position = query.position
    assert allowed.go_on() == other.offsets


def test_a_log_that_is_put_back_is_the_same(writer: Writer, tmp_path: Path) -> None:
    """As after `undo` of a truncation, or from a snapshot."""
    writer.put_many(100)
    query = Query(_reader(writer))
    query.go_on()
    shutil.copytree(writer.store, tmp_path / "copy")
    writer.cut(writer.offsets[30])
    shutil.rmtree(writer.store)
    shutil.move(tmp_path / "copy", writer.store)
    assert query.go_on() == []


def test_rolling_and_cleaning_are_no_change(writer: Writer) -> None:
    """Whatever is cleaned, and wherever the query stands: at the end of a file, at its beginning, inside."""
    query = Query(_reader(writer))
    for _ in range(100):
        writer.put(size=500)
        assert query.go_on() == writer.offsets[-1:]
        writer.clean(query.position["physical_offset"])
    assert query.read == writer.offsets
    assert writer.offsets[0] < FILE_SIZE < opened(writer.folder).min_offset


@pytest.mark.parametrize("limit", [600, 5000])
def test_files_that_were_read_may_be_removed_between_limited_batches(writer: Writer, limit: int) -> None:
    writer.put_many(120)
    query = Query(_reader(writer))
    while (end := query.plan(ReadMaxBytes(limit))) != query.position:
        query.carry_out(end)
        writer.clean(end["physical_offset"])
        last = next(offset for offset in reversed(query.read or [0]) if offset in writer.offsets)
        if (last + 800) % FILE_SIZE < last % FILE_SIZE and writer.offsets[writer.offsets.index(last) + 1] > last + 800:
            writer.clean(last + 800)
    assert query.read == writer.offsets


def test_a_blank_frame_that_was_taken_back_hides_nothing(writer: Writer) -> None:
    """A broker that starts again knows of a blank frame only by the file behind it: a small message may come there."""
    while FILE_SIZE - writer.position > 300:
        writer.put(size=50)
    end = writer.position
    writer.put(size=400)
    query = Query(_reader(writer, starting_offset=str(FILE_SIZE)))
    assert query.position["physical_offset"] == FILE_SIZE
    (writer.folder / f"{FILE_SIZE:020d}").unlink()
    writer.offsets.pop()
    writer.cut(end)
    small = [writer.put(size=10)]
    assert small == [end]
    assert query.go_on() == small
    assert query.go_on() == []
    later = writer.put_many(20)
    assert query.go_on() == later


def test_a_log_cleaned_past_the_position_is_a_loss(writer: Writer) -> None:
    writer.put_many(20)
    query = Query(_reader(writer))
    query.go_on()
    before = query.position["physical_offset"]
    writer.put_many(200)
    writer.clean(2 * FILE_SIZE)
    with pytest.raises(UnreadableError, match=f"messages from {before} to {2 * FILE_SIZE} were removed"):
        query.go_on()
    allowed = Query(_reader(writer, fail_on_data_loss="false"))
    allowed.position = query.position
    assert allowed.go_on() == [offset for offset in writer.offsets if offset >= 2 * FILE_SIZE]
    # a log that was cut back is another thing: where it is, nothing is lost
    fork = Query(_reader(writer, on_changed_log="fork"))
    fork.position = query.position
    with pytest.raises(UnreadableError, match="were removed"):
        fork.go_on()


def test_a_checkpoint_without_history_is_read_and_gets_one(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    writer.put_many(50)
    query = Query(_reader(writer))
    query.position = {"physical_offset": writer.offsets[30]}
    with caplog.at_level(logging.WARNING):
        assert query.go_on() == writer.offsets[30:]
        assert query.go_on() == []
    assert [record.message for record in caplog.records if "from an older version" in record.message] != []
    assert len(caplog.records) == 1
    query.position = {"physical_offset": writer.position}
    end = query.plan()
    assert end["history"]
    query.carry_out(end)
    assert query.plan() == query.position


def test_an_old_position_behind_the_end_is_no_reason_to_wait(writer: Writer) -> None:
    writer.put_many(50)
    query = Query(_reader(writer))
    query.position = {"physical_offset": writer.position + 1}
    with pytest.raises(UnreadableError, match=f"read up to {writer.position + 1}, but ends at {writer.position} now"):
        query.go_on()
    with pytest.raises(UsageError, match=f"beyond the end of the log, {writer.position}"):
        _reader(writer, starting_offset=str(writer.position + 1)).initialOffset()


def _planned_and_cut(writer: Writer, **options: str) -> tuple[Query, dict[str, Any], list[int]]:
    """A batch of 100 messages that was planned and not carried out: the last 20 of them were replaced."""
    writer.put_many(100)
    query = Query(_reader(writer, **options))
    query.go_on()
    writer.put_many(100)
    end = query.plan()
    writer.cut(writer.offsets[180])
    return query, end, writer.put_many(100)


def test_a_planned_batch_that_was_cut_off_fails(writer: Writer) -> None:
    query, end, _ = _planned_and_cut(writer)
    with pytest.raises(UnreadableError, match="was cut back since"):
        query.carry_out(end)


def test_a_planned_batch_that_was_cut_off_is_read_up_to_the_fork(writer: Writer) -> None:
    query, end, new = _planned_and_cut(writer, on_changed_log="fork")
    half = query.carry_out(end)
    rest = query.go_on()
    assert half + rest == writer.offsets[100:]
    assert set(new) <= set(rest)


def test_a_log_that_is_cut_back_under_a_task_fails_it(writer: Writer) -> None:
    writer.put_many(200)
    reader = _reader(writer, split_size="4000")
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert len(partitions) > 3
    writer.cut(writer.offsets[150])
    with pytest.raises(UnreadableError, match="while 0 to 4000 was read"):
        list(reader.read(partitions[0]))
    writer.clean(FILE_SIZE)
    with pytest.raises(UnreadableError, match=r"messages from \d+ to \d+ were removed"):
        list(reader.read(partitions[0]))


def test_a_batch_is_the_same_whenever_it_is_read(writer: Writer) -> None:
    """Also the one that begins somewhere else than the one before it ended."""
    query, _, _ = _cut_and_grown(writer, on_changed_log="fork")
    start, end = query.position, query.plan(ReadMaxBytes(2000))
    first = query.carry_out(end)
    query.position = start
    writer.put_many(10)
    assert query.carry_out(end) == first


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_no_message_is_lost_whatever_happens(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Appends, cuts, cleanings and batches in any order: all messages of the log come, the others of an epoch once."""
    writer = Writer(tmp_path_factory.mktemp("any") / "store")
    writer.put()
    query = Query(_reader(writer, on_changed_log="fork"))
    taken: dict[int, int] = {}
    epochs: dict[int, int] = {0: 0}
    steps = st.lists(st.tuples(st.sampled_from("ppprrrcl"), st.integers(0, 1000)), max_size=25)
    for epoch, (step, number) in enumerate(data.draw(steps), start=1):
        if step == "p":
            epochs |= dict.fromkeys(writer.put_many(number % 60), epoch)
        elif step == "r":
            end = query.plan(ReadMaxBytes(number * 20) if number else None)
            taken |= {offset: epochs[offset] for offset in query.carry_out(end)}
        elif step == "c" and len(writer.offsets) > 1:
            writer.cut(writer.offsets[max(opened(writer.folder).min_offset > 0, number % len(writer.offsets))])
            if not writer.offsets or not any(writer.folder.iterdir()):
                epochs |= {writer.put(): epoch}
        elif step == "l":
            begun = query.position["physical_offset"]
            writer.clean(min(begun, max(writer.position - FILE_SIZE, 0)))
    taken |= {offset: epochs[offset] for offset in query.go_on()}
    minimum = opened(writer.folder).min_offset
    for offset in writer.offsets:
        assert offset < minimum or taken.get(offset) == epochs[offset]


def test_a_stream_may_begin_at_a_time(writer: Writer) -> None:
    writer.put_many(200)
    first = 1_700_000_000_001  # the writer's clock moves on by one with each message
    for number in (0, 1, 77, 199):
        assert Query(_reader(writer, starting_timestamp=str(first + number))).go_on() == writer.offsets[number:]
    assert Query(_reader(writer, starting_timestamp=str(first + 200))).go_on() == []
    assert Query(_reader(writer, starting_timestamp="1")).go_on() == writer.offsets


def test_a_stream_may_have_some_topics_only(writer: Writer) -> None:
    writer.put_many(20)
    assert Query(_reader(writer, subscribe="T,U")).go_on() == writer.offsets
    assert Query(_reader(writer, subscribe="U")).go_on() == []
    assert Query(_reader(writer, subscribePattern="[S-U]")).go_on() == writer.offsets
    assert Query(_reader(writer, subscribePattern="")).go_on() == []
