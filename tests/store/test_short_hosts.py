"""A message of a broker with IPv6 that one with IPv4 stored again: its flag says IPv6, its address takes 4 bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, frame_crc, property_crc_text
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import Reason
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.walk import Damage, walk
from tests.rmqctl.looking import run
from tests.store.check.breaking import checked
from tests.store.columns.comparing import FORMS, assert_same, use_form
from tests.store.logs import frame, log_of

SIZE = 1 << 16
FLAG_AT = FRAME_HEADS[0].offset("sys_flag")
PLACE_AT = FRAME_HEADS[0].offset("physical_offset")
# written by RocketMQ 5.5.0 at 127.0.0.1, to which a consumer sent back a message that it had stored at fe80::1
REAL = bytes.fromhex(
    "00000124daa320a772702542000000000000000000000000000000050000000000025e5300000030000001a22a3b0f8020010db8"
    "00000000000000000000000900001390000001a22a3b17907f0000010000311a0000000100000000000000000000000476362038"
    "13"
)
REAL += b"SCHEDULE_TOPIC_XXXX\0\x9aORIGIN_MESSAGE_ID\1FE80000000000000000000000000000100002A9F0000000000005434\2"
REAL += b"RETRY_TOPIC\1A\2DELAY\0011\2KEYS\1six8\2WAIT\1false\2REAL_TOPIC\1%RETRY%rg\2x\1y\2REAL_QID\0010\2" + b"0" * 12
WHY = "flagged as IPv6, the store host takes 4 bytes: a broker with IPv4 stored what one with IPv6 had; "


def real(physical_offset: int) -> bytes:
    return REAL[:PLACE_AT] + physical_offset.to_bytes(8, "big") + REAL[PLACE_AT + 8 :]


def made(physical_offset: int, wrong: int, *, unused: bytes) -> bytes:
    """An IPv4 frame with a flag of IPv6, as long as that flag says."""
    plain = bytearray(frame(physical_offset, properties={"UNIQ_KEY": "U1", "KEYS": "k"}))
    plain[FLAG_AT : FLAG_AT + 4] = wrong.to_bytes(4, "big")
    plain += unused * wrong.bit_count()
    plain[:4] = len(plain).to_bytes(4, "big")
    return bytes(plain)


def store_of(root: Path, *frames: bytes) -> None:
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(b"".join(frames).ljust(SIZE, b"\0"))


@pytest.mark.parametrize("form", FORMS)
def test_both_walks_name_the_cause(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    begin = frame(0)
    data = begin + real(len(begin))
    log = log_of(tmp_path, (data + frame(len(data))).ljust(SIZE, b"\0"))
    found = list(walk(log))
    (damage,) = [record for record in found if isinstance(record, Damage)]
    assert (damage.reason, damage.end) == (Reason.LENGTHS, len(data))
    assert damage.detail == WHY + "but for that 1 message can be read: topic %RETRY%rg, key six8"
    assert_same(walk_columns(log), found)


def test_check_and_dump_say_it(tmp_path: Path) -> None:
    begin = frame(0)
    store_of(tmp_path, begin, real(len(begin)), frame(len(begin) + len(REAL)))
    (found,) = [one for one in checked(tmp_path)[0] if one.code.startswith("RMQ-LOG-0") and one.severity.is_alarm]
    assert (found.code, found.physical_offset, found.fix) == ("RMQ-LOG-004", len(begin), "rmqctl recover --bridge")
    assert found.message.startswith(WHY)
    done = run("dump", tmp_path / "commitlog" / f"{0:020d}", "--at", len(begin))
    assert "topic %RETRY%rg, key six8" in done.out


def test_each_message_of_the_span_is_counted_and_the_first_are_named(tmp_path: Path) -> None:
    data = b""
    for _ in range(5):
        data += real(len(data))
    (damage,) = [one for one in walk(log_of(tmp_path, data.ljust(SIZE, b"\0"))) if isinstance(one, Damage)]
    assert damage.detail.endswith("5 messages can be read: " + "; ".join(["topic %RETRY%rg, key six8"] * 3))


@pytest.mark.parametrize("unused", [bytes(12), b"\xff" * 12])
@pytest.mark.parametrize(
    ("wrong", "side"),
    [
        (SYS_FLAG_STORE_HOST_V6, "store host"),
        (SYS_FLAG_BORN_HOST_V6, "born host"),
        (SYS_FLAG_STORE_HOST_V6 | SYS_FLAG_BORN_HOST_V6, "store host and the born host"),
    ],
)
def test_the_last_message_of_a_log(wrong: int, side: str, unused: bytes, tmp_path: Path) -> None:
    data = frame(0)
    log = log_of(tmp_path, (data + made(len(data), wrong, unused=unused)).ljust(SIZE, b"\0"))
    (damage,) = [record for record in walk(log) if isinstance(record, Damage)]
    assert f"the {side} takes 4 bytes" in damage.detail
    assert damage.detail.endswith("topic T, key U1")


@pytest.mark.parametrize("cut", [1, 11, 12, 13, 100, len(REAL) - 4])
def test_a_message_cut_off_by_the_end_of_the_file(cut: int, tmp_path: Path) -> None:
    """Nothing is read behind it; what is whole before it is named."""
    data = real(0) + real(len(REAL))
    (damage,) = [one for one in walk(log_of(tmp_path, data[:-cut])) if isinstance(one, Damage)]
    assert damage.end == len(data) - cut
    assert damage.detail.startswith(WHY + "but for that 1 message can be read")


@pytest.mark.parametrize("is_right", [True, False])
def test_the_checksum_of_the_frame_counts(is_right: bool, tmp_path: Path) -> None:
    """It ends the frame, 12 bytes behind the place that the properties leave for it."""
    plain = bytearray(frame(0, properties={"KEYS": "k1"}, with_property_crc=True)[:-PROPERTY_CRC_SIZE])
    plain[:4] = (len(plain) + 12 + PROPERTY_CRC_SIZE).to_bytes(4, "big")
    plain[FLAG_AT : FLAG_AT + 4] = SYS_FLAG_STORE_HOST_V6.to_bytes(4, "big")
    plain += bytes(12)
    data = bytes(plain + property_crc_text(frame_crc(bytes(plain)) ^ (not is_right)))
    (damage,) = [one for one in walk(log_of(tmp_path, data.ljust(SIZE, b"\0"))) if isinstance(one, Damage)]
    assert damage.detail.startswith(WHY) == is_right


@pytest.mark.parametrize("at", [96, 101, 104, len(REAL) - 13])
def test_another_damage_is_not_called_so(at: int, tmp_path: Path) -> None:
    """A wrong length, a body that its checksum does not fit, or no text: nothing is proved."""
    begin = frame(0)
    broken = bytearray(real(len(begin)))
    broken[at] ^= 0xFF
    data = begin + broken
    log = log_of(tmp_path, (data + frame(len(data))).ljust(SIZE, b"\0"))
    (damage,) = [record for record in walk(log) if isinstance(record, Damage)]
    assert "flagged" not in damage.detail


def test_names_of_the_store_do_no_harm_where_they_are_printed(tmp_path: Path) -> None:
    wild = made(0, SYS_FLAG_STORE_HOST_V6, unused=b"0" * 12).replace(b"UNIQ_KEY\1U1", b"UNIQ_KEY\1\x1bc")
    (damage,) = [record for record in walk(log_of(tmp_path, wild.ljust(SIZE, b"\0"))) if isinstance(record, Damage)]
    assert damage.detail.endswith("key ?c")
