"""Lines made of columns, compiled and plain, held against the line that `message_json` makes of each message."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.message import Host, Message, StoredMessage
from rmqctl.messages import json_columns
from rmqctl.messages.json import JSON_ORDER, message_json
from rmqctl.messages.json_columns import JsonColumns, JsonLines
from rmqctl.output.table import visible_json
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.native.properties import MOST_PROPERTIES
from rmqctl.store.options import UNHEARD
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.read.select import Selection, in_log_order
from rmqctl.store.scan.chosen import LogRange, scanned
from tests.formats.frames import HOSTS, MESSAGES, frame_of
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import examples, goldens_of
from tests.store.logs import log_of
from tests.store.native.forms import compiled_form, plain_form

FORMS = ("compiled", "plain")
# what JSON, a terminal or a reader of bytes might trip over
WEIRD = st.one_of(
    st.text(st.sampled_from('ab"\\\n\r\t\b\f\x00\x07\x7f\x85\u202eäé\u2028😀\U000e0041 '), max_size=20),
    st.text(max_size=8),
)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    take_form(name, monkeypatch)
    return name


def take_form(name: str, patch: pytest.MonkeyPatch) -> None:
    module = compiled_form("json_out") if name == "compiled" else plain_form("json_out")
    patch.setattr(json_columns, "JsonLineWriter", module.JsonLineWriter)


def plain_line(message: StoredMessage, names: Sequence[str]) -> str:
    record = message_json(message, stored_body=True)
    record = {name: record[name] for name in names if name in record}
    return visible_json(json.dumps(record, ensure_ascii=False, allow_nan=False)) + "\n"


def made(log: MappedFileQueue, names: Sequence[str]) -> list[JsonLines]:
    lines, chooser = JsonColumns(names), RowChooser(Criteria())
    whole = LogRange(0, None, log.min_offset)
    found: Any = scanned(log, whole, lines.needs, chooser, lines, UNHEARD)
    return list(found)


def text_of(found: list[JsonLines]) -> str:
    return b"".join(bytes(one.text) for one in found).decode("utf-8")


def expected(log: MappedFileQueue, names: Sequence[str]) -> str:
    return "".join(plain_line(message, names) for message in in_log_order(log, Selection(), UNHEARD))


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_goldens(name: str, form: str) -> None:
    log = reader(name).files.log
    found = made(log, JSON_ORDER)
    assert text_of(found) == expected(log, JSON_ORDER)
    assert sum(one.rows for one in found) == text_of(found).count("\n")


@pytest.mark.parametrize("name", JSON_ORDER)
def test_each_field_alone(name: str, form: str) -> None:
    log = reader("features").files.log
    assert text_of(made(log, [name])) == expected(log, [name])


DRAWN = st.tuples(
    MESSAGES,
    st.one_of(st.none(), WEIRD, st.binary(max_size=40)),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", 'a"b', "ü", "__RMQ.TRANSIENT.x"]), WEIRD, max_size=4),
    HOSTS,
    st.sampled_from([0, 1, 1_700_000_000_001, -62_135_596_800_001, 253_402_300_800_000, 1 << 60, -(1 << 63)]),
)


def frames(drawn: list[tuple[Message, str | bytes | None, dict[str, str], Host, int]]) -> bytes:
    log = b""
    for message, body, properties, host, time in drawn:
        given = message.body if body is None else body
        texts = {name: value.encode("utf-8", "replace").decode("utf-8") for name, value in properties.items()}
        texts = {name: "".join(value.split("\x02")) for name, value in texts.items()}
        one = message._replace(
            body=given.encode("utf-8", "replace") if isinstance(given, str) else given, properties=texts
        )
        log += frame_of(one, host, physical_offset=len(log), store_timestamp=time)
    return log


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(DRAWN, min_size=1, max_size=8),
    st.one_of(st.just(JSON_ORDER), st.lists(st.sampled_from(JSON_ORDER), min_size=1, unique=True)),
)
def test_any_messages(
    drawn: list[tuple[Message, str | bytes | None, dict[str, str], Host, int]], names: Sequence[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = log_of(Path(folder), frames(drawn))
        line = expected(log, names)
        for form in FORMS:
            with pytest.MonkeyPatch.context() as patch:
                take_form(form, patch)
                assert text_of(made(log, names)) == line


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(10**14), 10**15)), min_size=1))
def test_times_and_numbers(times: list[int]) -> None:
    log_bytes = b""
    for time in times:
        message = Message("T", b"", born_timestamp=time, prepared_transaction_offset=time)
        log_bytes += frame_of(message, Host(b"\1\2\3\4", -5), physical_offset=len(log_bytes), store_timestamp=time)
    names = ("store_timestamp", "store_time", "born_time", "prepared_transaction_offset")
    with tempfile.TemporaryDirectory() as folder:
        log = log_of(Path(folder), log_bytes)
        for form in FORMS:
            with pytest.MonkeyPatch.context() as patch:
                take_form(form, patch)
                assert text_of(made(log, names)) == expected(log, names)


def test_what_is_left_to_message_json(form: str, tmp_path: Path) -> None:
    """An IPv6 host, a body that does not unpack, very many properties; lines before and behind them stay in order."""
    many = {f"n{number}": "v" for number in range(MOST_PROPERTIES + 1)}
    messages = [
        Message("A", b"before"),
        Message("V6", b"six", born_host=Host(bytes(15) + b"\1", 7)),
        Message("Bad", b"no zlib", sys_flag=1),
        Message("Many", b"x" * 3000, properties=many),
        Message("A", b"behind"),
    ]
    log_bytes = b""
    for message in messages:
        log_bytes += frame_of(message, Host(b"\1\2\3\4", 5), physical_offset=len(log_bytes), store_timestamp=1)
    log = log_of(tmp_path, log_bytes)
    [found] = made(log, JSON_ORDER)
    assert text_of([found]) == expected(log, JSON_ORDER)
    [(row, error)] = found.damage
    assert (row, error.message.startswith("Java clients drop it")) == (2, True)
    for count in range(len(messages) + 2):
        assert len(found.first(count).damage) == (count > 2)
        assert bytes(found.first(count).text).decode() == "".join(
            line + "\n" for line in expected(log, JSON_ORDER).split("\n")[: min(count, len(messages))]
        )


def test_a_line_that_is_longer_than_the_room_for_all(form: str, tmp_path: Path) -> None:
    """Escapes make a body six times as long."""
    body = b"\x01" * 100_000
    log = log_of(tmp_path, frame_of(Message("T", body), Host(b"\1\2\3\4", 5), physical_offset=0, store_timestamp=1))
    assert text_of(made(log, JSON_ORDER)) == expected(log, JSON_ORDER)
