"""Frames and headers byte by byte: what RocketMQ 5.3.3 and its clients sent, and whatever else may come."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import CorruptError
from rmqctl.network.remoting.codec import (
    LARGEST_FRAME,
    LARGEST_HEADER,
    FrameDecoder,
    MessageQueue,
    RemotingCommand,
    bean,
    decode_command,
    encode_frame,
    encode_header,
    fastjson,
    parse_body,
    queue_of_key,
)
from tests.quick import examples

# captured between 5.3.3 processes
SENT = (
    '{"code":310,"extFields":{"a":"PG1","b":"TopicA","i":"KEYS\\u0001k1 k2\\u0002"},"flag":0,"language":"JAVA",'
    '"opaque":4,"serializeTypeCurrentRPC":"JSON","version":479}'
)
ANSWERED = (
    '{"code":19,"extFields":{"suggestWhichBrokerId":"0","groupSysFlag":"0","nextBeginOffset":"5","maxOffset":"5",'
    '"minOffset":"0","topicSysFlag":"0"},"flag":1,"language":"JAVA","opaque":142,"remark":"OFFSET_OVERFLOW_ONE",'
    '"serializeTypeCurrentRPC":"JSON","version":479}'
)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """A frame, made by hand."""
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def decoded(data: bytes) -> RemotingCommand | None:
    decoder = FrameDecoder()
    decoder.feed(data)
    return decoder.next_command()


def binary(fields: bytes, remark: bytes = b"", *, remark_length: int | None = None, length: int | None = None) -> bytes:
    """A binary header, with lengths that lie if told so."""
    head = struct.pack(">hbhiii", 105, 3, 479, 7, 2, len(remark) if remark_length is None else remark_length)
    return head + remark + struct.pack(">i", len(fields) if length is None else length) + fields


def field(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def test_a_request_of_a_java_client_is_understood() -> None:
    command = decoded(frame(SENT.encode(), b"hello"))
    assert command is not None
    assert (command.code, command.opaque, command.flag, command.version, command.language) == (310, 4, 0, 479, "JAVA")
    assert command.fields == {"a": "PG1", "b": "TopicA", "i": "KEYS\x01k1 k2\x02"}
    assert command.body == b"hello"
    assert not command.is_oneway
    assert not command.is_response


def test_an_answer_has_the_bytes_of_a_broker() -> None:
    fields = {"suggestWhichBrokerId": "0", "groupSysFlag": "0", "nextBeginOffset": "5", "maxOffset": "5"}
    command = RemotingCommand(
        19, {**fields, "minOffset": "0", "topicSysFlag": "0"}, remark="OFFSET_OVERFLOW_ONE", opaque=142, flag=1
    )
    assert encode_header(command) == ANSWERED.encode()
    assert encode_frame(command._replace(body=b"xyz")) == frame(ANSWERED.encode(), b"xyz")


def test_a_binary_header_is_understood() -> None:
    fields = field(b"topic", b"TopicA") + field(b"empty", b"")
    command = decoded(frame(binary(fields, b"why"), b"body", kind=1))
    assert command is not None
    assert command == RemotingCommand(105, {"topic": "TopicA"}, b"body", "why", 7, 2, "PYTHON", 479)


def test_commands_are_found_however_the_bytes_come() -> None:
    data = frame(SENT.encode(), b"1") + frame(binary(b""), kind=1) + frame(SENT.encode(), b"2")
    decoder = FrameDecoder()
    found = []
    for position in range(len(data)):
        decoder.feed(data[position : position + 1])
        command = decoder.next_command()
        if command is not None:
            found.append((command.code, command.body))
    assert found == [(310, b"1"), (105, b""), (310, b"2")]
    assert decoder.buffered == 0


def test_unknown_keys_numbers_and_what_is_missing_are_taken_as_fastjson_does() -> None:
    header = '{"code":34,"extFields":{"n":3,"yes":true,"none":null},"more":[1],"language":"KLINGON"}'
    command = decode_command(header.encode(), 0, b"")
    assert command.fields == {"n": "3", "yes": "true"}
    assert (command.language, command.version, command.flag, command.opaque) == ("OTHER", 0, 0, 0)


def test_half_a_surrogate_pair_and_long_integers_are_taken_as_java_does() -> None:
    """orjson takes neither."""
    header = b'{"code":34,"extFields":{"half":"\\ud83d","n":123456789012345678901234567890}}'
    command = decode_command(header, 0, b"")
    assert command.fields == {"half": "\ud83d", "n": "123456789012345678901234567890"}
    assert b'"half":"\\ud83d"' in encode_header(command)


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=4), st.text(max_size=9), st.integers(0, 999))
def test_headers_are_written_as_python_writes_them(fields: dict[str, str], remark: str, opaque: int) -> None:
    written = encode_header(RemotingCommand(1, fields, remark=remark, opaque=opaque))
    content = {"code": 1, **({"extFields": fields} if fields else {}), "flag": 0, "language": "JAVA", "opaque": opaque}
    content |= {"remark": remark, "serializeTypeCurrentRPC": "JSON", "version": 479}
    assert written == json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    assert decode_command(written, 0, b"").fields == fields


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", LARGEST_FRAME - 3),
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 3) + b"abc",
        struct.pack(">II", 8, 5) + b"ab12",
        b"\x16\x03\x01\x02\x00\x01",
        frame(b"{}"),
        frame(b"[]"),
        frame(b'{"code":"105"}'),
        frame(b'{"code":true}'),
        frame(b'{"code":1e3}'),
        frame(b'{"code":2147483648}'),
        frame(b'{"code":1,"extFields":[1]}'),
        frame(b"[" * 100_000),
        frame(b"\xff\xfe"),
        frame(b'{"code":105}', kind=2),
        frame(b" " * (LARGEST_HEADER + 1)),
        frame(b"\0" * 16, kind=1),
        frame(binary(b"", remark_length=1), kind=1),
        frame(binary(b"", remark_length=-1), kind=1),
        frame(binary(b"", length=1), kind=1),
        frame(binary(b"", length=-1), kind=1),
        frame(binary(b"\0"), kind=1),
        frame(binary(b"\0\x05ab"), kind=1),
        frame(binary(struct.pack(">h", -1)), kind=1),
        frame(binary(field(b"a", b"b")[:-1]), kind=1),
        frame(binary(struct.pack(">h1si", 1, b"a", 1 << 30)), kind=1),
        frame(binary(field(b"\xff", b"b")), kind=1),
    ],
)
def test_what_is_no_command_ends_the_connection_before_memory_is_taken(data: bytes) -> None:
    with pytest.raises(CorruptError):
        decoded(data)


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0, 1, 2]))
def test_random_headers_are_commands_or_corrupt(header: bytes, kind: int) -> None:
    try:
        command = decoded(frame(header, kind=kind))
    except CorruptError:
        return
    assert command is not None


@settings(max_examples=examples(50), deadline=None)
@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.dictionaries(st.text(), st.text()),
    st.binary(max_size=50),
    st.none() | st.text(),
    st.integers(0, 3),
)
def test_what_is_encoded_is_decoded(
    code: int, fields: dict[str, str], body: bytes, remark: str | None, flag: int
) -> None:
    command = RemotingCommand(code, fields, body, remark, opaque=-5, flag=flag)
    assert decoded(encode_frame(command)) == command


def test_an_answer_that_no_frame_holds_is_refused() -> None:
    with pytest.raises(CorruptError, match="larger than a frame"):
        encode_frame(RemotingCommand(0, body=bytes(LARGEST_FRAME)))


def test_bodies_have_the_keys_of_fastjson() -> None:
    queue = MessageQueue("broker-a", 3, "TopicA")
    content = bean(offsetTable={queue: bean(minOffset=0, maxOffset=2, nothing=None)}, addresses={0: "127.0.0.1:1"})
    assert fastjson(content).decode() == (
        '{"addresses":{0:"127.0.0.1:1"},"offsetTable":'
        '{{"brokerName":"broker-a","queueId":3,"topic":"TopicA"}:{"maxOffset":2,"minOffset":0}}}'
    )
    assert fastjson([True, 1.5, None, "é\x01", ("a",)]).decode() == '[true,1.5,null,"é\\u0001",["a"]]'
    assert parse_body(b'{0:"a","b":{1:2}}') == {0: "a", "b": {1: 2}}
    for bad in (b"\xff", b"[]", b"{", b"[" * 10_000):
        with pytest.raises(CorruptError):
            parse_body(bad)


def test_keys_that_are_objects_are_read_as_fastjson_writes_them() -> None:
    odd = MessageQueue('b"{,:}', 1, "T\\")
    table = {MessageQueue("broker-a", 0, "T"): {"n": 1}, odd: {"text": '{"a":{"b":1}:2}'}}
    content = parse_body(fastjson({"offsetTable": table, "empty": {}, "in a list": [{MessageQueue("c", 2, "X"): 3}]}))
    assert {queue_of_key(key): value for key, value in content["offsetTable"].items()} == table
    assert [{queue_of_key(key): value for key, value in one.items()} for one in content["in a list"]] == [
        {MessageQueue("c", 2, "X"): 3}
    ]
    # servers of other languages write the text of the object
    assert queue_of_key('{"brokerName":"b","queueId":7,"topic":"T"}') == MessageQueue("b", 7, "T")
    assert [queue_of_key(key) for key in (7, "7", "T", "{")] == [None] * 4


def test_hostile_bodies_with_braces_take_no_time() -> None:
    for text in ('{"a":' + "{" * 200_000, "{" + '{"a"' * 100_000, '{"' * 200_000, "{{" + '"a",' * 200_000):
        with pytest.raises(CorruptError):
            parse_body(text.encode())
