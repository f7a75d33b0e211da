"""A message in JSON: every field of the truth under its name, and enough to store it again byte for byte."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.message import Message, StoredMessage, frame_bytes, parse_host, prepare_frame
from rmqctl.formats.properties import encode_properties
from rmqctl.messages.json import ALL_COLUMNS, message_json, message_row
from rmqctl.store.log.walk import walk
from tests.goldens import GOLDENS, is_broken, truth
from tests.opened import reader
from tests.quick import goldens_of

WHOLE = [name for name in GOLDENS if not is_broken(name)]


def stored(name: str) -> Iterator[StoredMessage]:
    return (record for record in walk(reader(name).files.log) if isinstance(record, StoredMessage))


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_every_field(name: str) -> None:
    for message, row in zip(stored(name), truth(name).messages, strict=True):
        found = json.loads(json.dumps(message_json(message)))
        assert found["msg_id"] == row["msgId"]
        assert found["unique_key"] == row["properties"].get("UNIQ_KEY")
        assert (found["topic"], found["queue_id"], found["queue_offset"]) == (
            row["topic"],
            row["queueId"],
            row["queueOffset"],
        )
        assert (found["physical_offset"], found["size"]) == (row["phyOffset"], row["storeSize"])
        assert (found["store_timestamp"], found["born_timestamp"]) == (row["storeTimestamp"], row["bornTimestamp"])
        assert (found["sys_flag"], found["flag"], found["body_crc"]) == (row["sysFlag"], row["flag"], row["bodyCRC"])
        assert found["reconsume_times"] == row["reconsumeTimes"]
        assert found["tags"] == row["tags"]
        assert found["keys"] == (row["keys"].split(" ") if row["keys"] else [])
        assert found["properties"] == row["properties"]
        assert found["body_size"] == (row["bodyLengthPlain"] or 0)
        assert found["crc_ok"] is True
        assert set(found) - {"properties_base64"} <= set(ALL_COLUMNS)


def test_names_of_transactions_and_compressions() -> None:
    found = {(one["sys_flag"], one["transaction"], one["compression"]) for one in map(message_json, stored("features"))}
    assert {(0x4, "prepared", None), (0xC, "rollback", None), (0x8, "commit", None)} <= found
    assert {(0x101, "none", "lz4"), (0x201, "none", "zstd"), (0x301, "none", "zlib"), (0x1, "none", "zlib")} <= found


def test_times_are_utc() -> None:
    message = next(stored("clean"))
    found = message_json(message)
    assert (found["store_timestamp"], found["store_time"]) == (1795217374393, "2026-11-20T23:29:34.393Z")


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_the_json_holds_all_that_a_copy_needs(name: str) -> None:
    crc = name == "propcrc"
    for message in stored(name):
        found = json.loads(json.dumps(message_json(message, stored_body=True)))
        if "stored_body_base64" in found:
            body = base64.b64decode(found["stored_body_base64"])
        elif "body_base64" in found:
            body = base64.b64decode(found["body_base64"])
        else:
            body = found["body"].encode()
        properties = encode_properties(found["properties"])
        if "properties_base64" in found:
            properties = base64.b64decode(found["properties_base64"])
        assert properties == message.property_bytes
        assert body_crc(body) == found["body_crc"]
        if crc:
            continue
        host = parse_host(found["store_host"])
        copy = Message(
            found["topic"],
            body,
            found["queue_id"],
            found["flag"],
            property_bytes=properties,
            sys_flag=found["sys_flag"],
            born_host=parse_host(found["born_host"]),
            reconsume_times=found["reconsume_times"],
            prepared_transaction_offset=found["prepared_transaction_offset"],
        )
        frame = frame_bytes(
            prepare_frame(copy, host, found["born_timestamp"]),
            found["queue_offset"],
            found["physical_offset"],
            found["store_timestamp"],
        )
        assert frame == reader(name).files.log.read(message.physical_offset, message.total_size)


def test_properties_as_stored_only_where_they_are_needed() -> None:
    assert not any("properties_base64" in message_json(message) for message in stored("clean"))
    # 4.9.8 writes no final separator
    assert all("properties_base64" in message_json(message) for message in stored("v4-clean"))


def test_a_body_that_is_no_text() -> None:
    message = next(stored("clean"))._replace(body=b"\xff\x00", body_crc=0)
    found = message_json(message)
    assert base64.b64decode(found["body_base64"]) == b"\xff\x00"
    assert "body" not in found
    assert found["crc_ok"] is False


def test_a_compressed_body_that_cannot_be_unpacked_is_given_as_stored() -> None:
    message = next(stored("clean"))._replace(body=b"no zlib", sys_flag=1)
    found = message_json(message)
    assert base64.b64decode(found["body_base64"]) == b"no zlib"
    assert "zlib" in found["body_error"]
    assert "zlib" in message_row(message)["body"]


def test_a_preview_does_not_cut_a_character_in_two() -> None:
    message = next(stored("clean"))._replace(body=("é" * 200).encode()[1:])
    assert message_row(message)["body"].startswith("\\xa9é")
    message = message._replace(body=b"x" + ("é" * 200).encode())
    assert message_row(message)["body"] == "x" + "é" * 59
