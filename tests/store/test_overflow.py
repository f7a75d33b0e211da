"""A message whose length of topic or properties overflows: damage for a broker, and shown and salvaged as a message."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import Reason
from rmqctl.store.dump.dump_file import dump_file
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.walk import Damage, overflowed_message, walk
from rmqctl.store.predict import predict
from rmqctl.store.salvage.salvage import salvage
from rmqctl.store.store_files import StoreFiles
from tests.rmqctl.looking import run
from tests.store.check.breaking import checked
from tests.store.columns.comparing import FORMS, assert_same, use_form
from tests.store.logs import frame, log_of
from tests.store.overflows import long_properties, overflowed
from tests.store.write.writing import stored_messages

SIZE = 1 << 20
LONG = long_properties(33010)


def store_of(root: Path, *bodies: bytes | None) -> list[int]:
    """A store with a commitlog only; None is a message with properties that are too long. Physical offsets."""
    data, places = b"", []
    for number, body in enumerate(bodies):
        places.append(len(data))
        if body is None:
            made = bytearray(overflowed(len(data), LONG))
            made[20:28] = number.to_bytes(8, "big")
            data += bytes(made)
        else:
            data += frame(len(data), body, queue_offset=number)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(SIZE, b"\0"))
    return places


@pytest.mark.parametrize("form", FORMS)
def test_both_walks_agree(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    data = frame(0)
    for properties, body in ((LONG, b"x"), (long_properties(65535), b"y" * 300_000), (LONG, b"")):
        data += overflowed(len(data), properties, body)
        if body:
            data += overflowed(len(data), b"", b"z", topic=b"t" * 200)
    data += frame(len(data))
    log = log_of(tmp_path, data.ljust(SIZE, b"\0"))
    found = list(walk(log))
    assert [record.reason for record in found if isinstance(record, Damage)] == [Reason.OVERFLOW] * 5
    assert_same(walk_columns(log), found)


def test_check_names_the_cause(tmp_path: Path) -> None:
    _, at, _ = store_of(tmp_path, b"a", None, b"c")
    (found,) = [one for one in checked(tmp_path)[0] if one.code.startswith("RMQ-LOG-0") and one.severity.is_alarm]
    assert (found.code, found.physical_offset, found.messages, found.data_lost) == ("RMQ-LOG-030", at, 1, False)
    assert (found.topic, found.fix) == ("T", "rmqctl salvage")
    assert "33010 of the properties is over 32767" in found.message


def test_the_command_that_keeps_the_message_comes_first(tmp_path: Path) -> None:
    """Its unit is a finding as well, whose fix would take the message out: neither it nor a plain repair comes next."""
    _, at, _ = store_of(tmp_path, b"a", None, b"c")
    size = int.from_bytes((tmp_path / "commitlog" / f"{0:020d}").read_bytes()[at : at + 4], "big")
    (tmp_path / "consumequeue" / "T" / "0").mkdir(parents=True)
    unit = CONSUMEQUEUE_UNIT.struct.pack(at, size, 0)
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes((bytes(20) + unit).ljust(2000, b"\0"))
    found = checked(tmp_path)[0]
    (of_unit,) = [one for one in found if one.code == "RMQ-CQ-009"]
    assert of_unit.data_lost is False
    done = run("check", "-s", tmp_path)
    assert f"next: rmqctl salvage {tmp_path} --to {tmp_path}.salvaged" in done.out
    assert "messages are lost" not in done.out
    left = run("repair", "-s", tmp_path, "--json").objects[0]
    assert ("RMQ-LOG-030", "rmqctl salvage") in [(row["code"], row["fix"]) for row in left["left"]]


def test_the_last_message_is_not_called_torn(tmp_path: Path) -> None:
    _, at = store_of(tmp_path, b"a", None)
    (found,) = [one for one in checked(tmp_path)[0] if one.code.startswith("RMQ-LOG-0") and one.severity.is_alarm]
    assert (found.code, found.physical_offset, found.messages, found.data_lost) == ("RMQ-LOG-031", at, 1, False)
    assert found.fix == "rmqctl salvage"


def test_a_damaged_body_is_not_called_whole(tmp_path: Path) -> None:
    _, at, _ = store_of(tmp_path, b"a", None, b"c")
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at + 88] ^= 1
    path.write_bytes(data)
    (found,) = [one for one in checked(tmp_path)[0] if one.code.startswith("RMQ-LOG-0") and one.severity.is_alarm]
    assert (found.code, found.data_lost) == ("RMQ-LOG-004", True)
    assert [row["queue_offset"] for row in run("cat", "-s", tmp_path, "--json").objects] == [0, 2]


def test_a_broker_stops_there(tmp_path: Path) -> None:
    _, at, _ = store_of(tmp_path, b"a", None, b"c")
    with StoreFiles(tmp_path) as files:
        assert predict(files, "5.3.3").end_offset == at


def test_cat_shows_it_and_says_that_it_is_damage(tmp_path: Path) -> None:
    store_of(tmp_path, b"a", None, None, b"c")
    done = run("cat", "-s", tmp_path, "--json")
    assert [row["body"] for row in done.objects] == ["a", "the body", "the body", "c"]
    assert done.objects[1]["properties"]["K"] == "v" * (33010 - 11)
    assert "over 32767" in done.err
    assert done.code == run("cat", "-s", tmp_path, "-k", "k1").code != 0
    assert [row["queue_offset"] for row in run("cat", "-s", tmp_path, "-k", "k1", "--json").objects] == [1, 2]


def test_dump_shows_every_field(tmp_path: Path) -> None:
    _, at, _ = store_of(tmp_path, b"a", None, b"c")
    items = list(dump_file(tmp_path / "commitlog" / f"{0:020d}", at=at)[1])
    assert [item.kind for item in items] == ["damage", "message", "empty"]
    assert [(one.name, one.size) for one in items[0].fields[-2:]] == [("properties_length", 2), ("properties", 33010)]
    assert items[0].fields[-2].value == 33010
    assert items[0].damage == "overflow: length 33010 of the properties is over 32767, a broker reads it as -32526"


@pytest.mark.parametrize("loose", [False, True])
def test_salvage_stores_it_without_what_does_not_fit(loose: bool, tmp_path: Path) -> None:
    _, at, second, _ = store_of(tmp_path / "old", b"a", None, None, b"c")
    source, before = tmp_path / "old", 0
    if loose:
        data = (source / "commitlog" / f"{0:020d}").read_bytes()
        source, before = tmp_path / "found.bin", 7
        source.write_bytes(b"garbage" + data)
    report = salvage([source], tmp_path / "new")
    assert (report.found, report.salvaged, report.left_out, report.renumbered) == (4, 4, 0, 0)
    assert report.causes["overflow"] == 2
    stored = stored_messages(tmp_path / "new")
    assert [message.body for message in stored] == [b"a", b"the body", b"the body", b"c"]
    assert [message.queue_offset for message in stored] == [0, 1, 2, 3]
    assert stored[1].properties() == {"KEYS": "k1"}
    rows = [json.loads(line) for line in (tmp_path / "new.lost-and-found.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["cause"] == "overflow"]
    assert [(row["begin"] - before, row["physical_offset"]) for row in rows] == [(at, at), (second, second)]
    assert rows[0]["properties"] == {"K": "v" * (33010 - 11)}


def test_salvage_lists_what_no_frame_can_hold_with_its_content(tmp_path: Path) -> None:
    """A topic of 200 bytes fits into the newer frame; one of 32768 bytes into none, nor into the name of a folder."""
    root = tmp_path / "old"
    data = frame(0, b"a")
    data += overflowed(len(data), b"KEYS\1k1\2", b"b\0\xff", topic=b"t" * 200)
    data += overflowed(len(data), b"KEYS\1k1\2", b"b\0\xff", topic=b"t" * 32768, v2=True)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data.ljust(SIZE, b"\0"))
    report = salvage([root], tmp_path / "new")
    assert (report.found, report.salvaged, report.left_out) == (3, 2, 1)
    (row,) = [json.loads(line) for line in (tmp_path / "new.lost-and-found.jsonl").read_text().splitlines()]
    assert (row["cause"], row["topic"], row["properties"]) == ("topic", "t" * 32768, {"KEYS": "k1"})
    assert base64.b64decode(row["body_base64"]) == b"b\0\xff"


def test_salvage_is_not_whole_without_a_property(tmp_path: Path) -> None:
    store_of(tmp_path / "old", b"a", None, b"c")
    done = run("salvage", tmp_path / "old", "--to", tmp_path / "new")
    assert done.code == 1
    assert "do not fit" in done.err


def test_both_lengths_at_their_end(tmp_path: Path) -> None:
    """The tail of a large frame is longer than any that a broker can read."""
    data = frame(0)
    at = len(data)
    data += overflowed(at, long_properties(65535), b"y" * 300_000, topic=b"t" * 65535, v2=True)
    log = log_of(tmp_path, (data + frame(len(data))).ljust(SIZE, b"\0"))
    (found,) = [record for record in walk(log) if isinstance(record, Damage)]
    assert (found.reason, found.physical_offset, found.end) == (Reason.OVERFLOW, at, len(data))
    message = overflowed_message(log, found)
    assert message is not None
    assert (len(message.topic), len(message.property_bytes)) == (65535, 65535)
