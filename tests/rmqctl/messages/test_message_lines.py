"""Lines of CSV made of whole batches held against those of one message after the other: the same, byte for byte."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from rmqctl.formats.message import Host, Message, StoredMessage
from rmqctl.messages import text as text_arrays
from rmqctl.messages.json import ALL_COLUMNS, EXACT_COLUMNS, message_json
from rmqctl.messages.text import MessageLines
from rmqctl.output.table import csv_value
from rmqctl.output.times import format_time
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.select import Selection, in_log_order
from rmqctl.store.scan.scan import Scan
from rmqctl.store.scan.schema import arrow_schema
from tests.formats.frames import HOSTS, MESSAGES, frame_of
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import examples, goldens_of
from tests.store.logs import log_of

NAMES = (*ALL_COLUMNS, *EXACT_COLUMNS)
# what JSON, CSV, a terminal or a reader of bytes might trip over
WEIRD = st.one_of(
    st.text(st.sampled_from('ab",\\\n\r\t\x00\x07\x7f\x85\u202eäé\u2028😀\U000e0041 '), max_size=8), st.text(max_size=8)
)


def plain_line(message: StoredMessage, names: Sequence[str] | None) -> str:
    record = message_json(message, stored_body=True)
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([csv_value(record.get(name)) for name in names or NAMES])
    return line.getvalue()


def made(log: MappedFileQueue, names: Sequence[str] | None) -> str:
    lines = MessageLines(names)
    batches = Scan(log, lines.needs, views=False).batches(Events(damage=lambda _: None))
    return b"".join(bytes(lines.lines(batch)) for batch in batches).decode("utf-8")


def plain(log: MappedFileQueue, names: Sequence[str] | None) -> str:
    return "".join(plain_line(message, names) for message in in_log_order(log, Selection(), UNHEARD))


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_goldens(name: str) -> None:
    log = reader(name).files.log
    assert made(log, None) == plain(log, None)


@pytest.mark.parametrize("name", NAMES)
def test_each_column_alone(name: str) -> None:
    log = reader("features").files.log
    assert made(log, [name]) == plain(log, [name])


DRAWN = st.tuples(
    MESSAGES,
    st.one_of(st.none(), WEIRD, st.binary(max_size=9)),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", 'a"b', "ü"]), WEIRD, max_size=3),
    HOSTS,
    st.sampled_from([0, 1, 1_700_000_000_001, -62_135_596_800_001, 253_402_300_800_000, 1 << 60]),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    drawn=st.lists(DRAWN, min_size=1, max_size=8),
    names=st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, unique=True)),
)
def test_any_messages(
    drawn: list[tuple[Message, str | bytes | None, dict[str, str], Host, int]],
    names: list[str] | None,
) -> None:
    log = b""
    for message, body, properties, host, time in drawn:
        given = message.body if body is None else body
        texts = {name: value.encode("utf-8", "replace").decode("utf-8") for name, value in properties.items()}
        texts = {name: "".join(value.split("\x02")) for name, value in texts.items()}
        one = message._replace(
            body=given.encode("utf-8", "replace") if isinstance(given, str) else given, properties=texts
        )
        log += frame_of(one, host, physical_offset=len(log), store_timestamp=time)
    with tempfile.TemporaryDirectory() as folder:
        found = log_of(Path(folder), log)
        assert len(list(in_log_order(found, Selection(), UNHEARD))) == len(drawn)
        assert made(found, names) == plain(found, names)


@given(st.lists(st.one_of(st.none(), WEIRD)))
@example(["", "", '"', "", "clean", ""])
def test_texts(values: list[str | None]) -> None:
    kept = [None if value is None else value.encode("utf-8", "replace").decode("utf-8") for value in values]
    for array in (pa.array(kept, pa.string()), pa.array([None, "x", *kept], pa.string()).slice(2)):
        for encoded in (array, array.dictionary_encode()):
            fields = text_arrays.csv_texts(encoded).to_pylist()
            for field, value in zip(fields, kept, strict=True):
                assert field is None if value is None else plain_field(value) == field


def plain_field(value: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([csv_value(value), "behind"])
    return line.getvalue().removesuffix(",behind\n")


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.lists(st.integers(-(10**14), 10**15)))
@example([], [])
@example([0, -1], [253_402_300_799_999, -62_135_596_800_000])
def test_times(wide: list[int], narrow: list[int]) -> None:
    for times in (wide, narrow):
        array = pa.array(times, pa.int64()).view(pa.timestamp("ms", "UTC"))
        assert text_arrays.time_texts(array).to_pylist() == list(map(format_time, times))


def test_no_message_is_no_line() -> None:
    lines = MessageLines(None)
    empty = pa.RecordBatch.from_pylist([], arrow_schema(lines.needs, views=False))
    assert bytes(lines.lines(empty)) == b""
