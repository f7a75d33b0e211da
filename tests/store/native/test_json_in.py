"""Lines of JSON as rows, compiled and plain, held against the message of each line by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import LOCAL_HOST, Message
from rmqctl.formats.properties import UNIQUE_KEY, encode_properties, parse_properties
from rmqctl.messages import json_rows
from rmqctl.messages.input import message_from_line
from rmqctl.messages.json_rows import LineRows
from rmqctl.network.unique_ids import UniqueIds
from rmqctl.store.native.json_in import MOST_PROPERTIES
from rmqctl.store.native.tables import HOST_TABLE, Frame
from rmqctl.store.write.bulk.bulk import NO_TIME
from rmqctl.store.write.prepare import UNUSUAL_PROPERTIES
from rmqctl.store.write.put import packed_host
from tests.opened import store_path
from tests.quick import examples
from tests.rmqctl.looking import run
from tests.store.native.forms import compiled_form, plain_form

FORMS = ("compiled", "plain")
TEXTS = st.one_of(st.text(max_size=12), st.text(st.sampled_from('ab"\\/\n\t\x00\x01\x02\x7fé\u2028😀 '), max_size=20))
HOSTS = st.sampled_from(["1.2.3.4:5", "5.6.7.8:-9", "[::1]:9", "[::ffff:1.2.3.4]:5", "here", "", None, 7])
INTEGERS = st.one_of(
    st.integers(-3, 100),
    st.integers(-(1 << 65), 1 << 65),
    st.sampled_from([1.0, 1e3, True, None, "1", 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 10**18]),
)
BASE64 = st.sampled_from(
    ["", "/w==", "YQ==", "YWI=", "YWJj", "YWJjZGVm+/8=", "YR==", "YQ=", "Y", "????", "YQ==YQ==", "Y Q=", "==", None, 3]
)
SPECIAL = sorted([*UNUSUAL_PROPERTIES, "__RMQ.TRANSIENT.x", "__RMQ.TRANSIENT", UNIQUE_KEY, "KEYS", "TAGS"])
STORED = st.sampled_from(
    ["", "REVMQVkBMwI=", "S0VZUwFhAg==", "VU5JUV9LRVkBeAI=", "/w==", "AVgC", "eAFERUxBWQEzAg==", None]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.one_of(TEXTS, st.just("Topic")),
    "body": st.one_of(TEXTS, st.none()),
    "body_base64": BASE64,
    **dict.fromkeys(("queue_id", "flag", "sys_flag", "reconsume_times"), INTEGERS),
    **dict.fromkeys(("prepared_transaction_offset", "born_timestamp", "store_timestamp"), INTEGERS),
    **dict.fromkeys(("born_host", "store_host"), HOSTS),
    "tags": st.one_of(TEXTS, st.none(), st.just(5)),
    "keys": st.one_of(st.lists(st.one_of(TEXTS, st.sampled_from(["k", "k l", "", 4]))), st.none(), st.just("k")),
    "properties": st.one_of(
        st.dictionaries(st.one_of(TEXTS, st.sampled_from(SPECIAL)), st.one_of(TEXTS, st.just(1)), max_size=4),
        st.none(),
        st.just([]),
    ),
    "properties_base64": st.one_of(BASE64, STORED),
    "stored_body_base64": BASE64,
    "body_error": st.sampled_from([None, "it is broken"]),
    "size": st.sampled_from([1, -1.5e-7, "x", True, False, None, [], {}, 1 << 70]),
    "msg_id": TEXTS,
    "unique_key": st.one_of(TEXTS, st.none()),
    "unknown": st.just(1),
}
PLAIN = st.fixed_dictionaries(
    {"topic": st.sampled_from(["A", "B", "topic-é"]), "body": TEXTS},
    optional={
        "queue_id": st.integers(0, 3),
        "tags": st.sampled_from(["t", None]),
        "keys": st.lists(st.sampled_from(["k", "l"]), max_size=3),
        "properties": st.dictionaries(st.sampled_from(["a", "TAGS", UNIQUE_KEY]), st.sampled_from(["v", "\u00e9"])),
        "store_timestamp": st.just(1),
        "store_host": HOSTS,
        "born_host": HOSTS,
        "crc_ok": st.booleans(),
    },
)
OPTIONAL = st.fixed_dictionaries({}, optional={name: VALUES[name] for name in VALUES if name != "topic"})


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """Lines as programs write them, and now and then with a byte too many, too few or wrong."""
    record = draw(st.one_of(PLAIN, OPTIONAL, st.tuples(PLAIN, OPTIONAL).map(lambda both: both[0] | both[1])))
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " : ")]))
    line = json.dumps(record, ensure_ascii=draw(st.booleans()), separators=separators).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(line)))
        put = draw(
            st.sampled_from([b"", b'"', b"\\", b"\\ud800", b"\\u00e9", b"\xff", b"\x01", b"0", b",", b" ", b"}"])
        )
        line = line[:at] + put + line[at + draw(st.integers(0, 1)) :]
    return draw(st.sampled_from([b"", b" ", b""])) + line + draw(st.sampled_from([b"", b"\r", b" \t"]))


def said(line: bytes, as_stored: bool) -> Message | str | None:
    """The message of a line, or what is wrong with it; None for a blank one."""
    if not line.strip():
        return None
    try:
        return message_from_line(line, as_stored)[0]
    except UsageError as error:
        return error.message


def message_of(found: LineRows, place: int) -> Message:
    """A usual row as the message that its columns say."""
    rows = found.rows
    columns = {name: int(rows.columns[name, place]) for name in Frame}
    data: list[bytes] = []
    for part, held in enumerate((rows.bodies, rows.properties)):
        data.append(bytes(held[rows.starts[part, place] : rows.ends[part, place]]))
    born, stored = columns[Frame.BORN_TIMESTAMP], columns[Frame.STORE_TIMESTAMP]
    return Message(
        rows.topics[columns[Frame.TOPIC]], data[0], columns[Frame.QUEUE_ID], columns[Frame.FLAG],
        property_bytes=data[1], sys_flag=columns[Frame.SYS_FLAG],
        born_timestamp=None if born == NO_TIME else born,
        store_timestamp=None if stored == NO_TIME else stored,
        reconsume_times=columns[Frame.RECONSUME_TIMES],
        prepared_transaction_offset=columns[Frame.PREPARED],
    )  # fmt: skip


def stored_form(message: Message) -> Message:
    """The message with its properties as bytes, and without hosts."""
    given = message.property_bytes
    data = encode_properties(message.properties) if given is None else given
    return message._replace(
        properties=Message("", b"").properties, property_bytes=data, born_host=LOCAL_HOST, store_host=None
    )


def check(text: bytes, as_stored: bool, needs_ids: bool) -> LineRows:
    """Hold what is read of a text against its lines, in both forms; the compiled one."""
    lines = text.split(b"\n")
    # each with its end, which a syntax error may name
    whole = [line + b"\n" for line in lines[:-1]] + lines[-1:]
    expected = {number: said(line, as_stored) for number, line in enumerate(whole)}
    messages = {number: one for number, one in expected.items() if isinstance(one, Message)}
    made = []
    for form in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            take_form(form, patch)
            found = LineRows(text, as_stored, needs_ids)
            before = UniqueIds(lambda: 1_700_000_000_000)
            before._number = 5
            given = [message_from_line(whole[number], as_stored)[1] for number in messages] if needs_ids else []
            if needs_ids:
                found.give_ids(before)
        again = UniqueIds(lambda: 1_700_000_000_000)
        again._number = 5
        wanted = [
            again.given_to(one) if needs_ids and given[place] else one for place, one in enumerate(messages.values())
        ]
        assert found.errors == {number: one for number, one in expected.items() if isinstance(one, str)}
        assert found.lines.tolist() == list(messages)
        rows = found.rows
        assert [rows.message(place) for place in range(len(rows))] == wanted
        for place, message in enumerate(wanted):
            if not rows.usual[place]:
                continue
            assert message_of(found, place) == stored_form(message)
            assert rows.hosts[rows.columns[Frame.BORN_HOST, place]] == packed_host(message.born_host)
            number = rows.columns[Frame.STORE_HOST, place]
            assert number == HOST_TABLE if not as_stored else rows.hosts[number] == packed_host(message.store_host)
        made.append((rows.usual.tolist(), rows.columns.tolist(), rows.starts.tolist(), rows.ends.tolist()))
    assert made[0] == made[1]
    return found


def take_form(name: str, patch: pytest.MonkeyPatch) -> None:
    module = compiled_form("json_in") if name == "compiled" else plain_form("json_in")
    patch.setattr(json_rows, "LineReader", module.LineReader)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.one_of(json_lines(), st.sampled_from([b"", b" \r", b"{}", b"\x0b"])), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_what_is_read_is_what_the_lines_say(lines: list[bytes], as_stored: bool, needs_ids: bool) -> None:
    check(b"\n".join(lines), as_stored, needs_ids)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=8), st.booleans(), st.booleans())
def test_plain_lines_are_usual(records: list[dict[str, Any]], as_stored: bool, needs_ids: bool) -> None:
    text = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    found = check(text, as_stored, needs_ids)
    read = [records[number] for number in found.lines.tolist()]
    for record, is_usual in zip(read, found.rows.usual.tolist(), strict=True):
        hosts = [record.get("born_host"), record.get("store_host") if as_stored else None]
        is_plain = "[::1]:9" not in hosts and not {"", 7} & {record.get("born_host"), record.get("store_host")}
        assert is_usual == (is_plain and "" not in record.get("properties", {}).values())


@pytest.mark.parametrize("name", ["clean", "features", "v4-features", "longtopic"])
def test_all_that_cat_prints_is_read(name: str) -> None:
    text = run("cat", "-s", store_path(name), "--json", "--stored-bodies").out.encode()
    found = check(text, True, False)
    assert len(found.rows) == text.count(b"\n") > 0
    for place in range(len(found.rows)):
        message = found.rows.message(place)
        names = parse_properties(encode_properties(message.properties)).keys()
        if names.isdisjoint(UNUSUAL_PROPERTIES) and packed_host(message.born_host) and packed_host(message.store_host):
            assert found.rows.usual[place] or message.sys_flag & SYS_FLAG_COMPRESSED


@pytest.mark.parametrize("form", FORMS)
def test_many_topics_hosts_and_properties(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_form(form, monkeypatch)
    count = MOST_PROPERTIES
    records: list[dict[str, Any]] = [
        {"topic": f"T{number % 500}", "body": "", "born_host": f"1.2.{number % 7}.4:{number}"} for number in range(2000)
    ]
    records.append({"topic": "T", "body": "", "properties": {f"n{number}": "v" for number in range(count)}})
    records.append({"topic": "T", "body": "", "properties": {f"n{number}": "v" for number in range(count + 1)}})
    found = LineRows("\n".join(map(json.dumps, records)).encode(), False, False)
    assert found.rows.usual.tolist() == [True] * 2001 + [False]
    assert len(found.rows.topics) == 501
    assert len(found.rows.hosts) == 2002
    assert found.rows.message(2001).properties == records[2001]["properties"]
    assert [message_of(found, place).topic for place in range(2000)] == [one["topic"] for one in records[:2000]]
