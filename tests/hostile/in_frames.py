"""Hostile stores: what can be wrong with messages and their frames."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from rmqctl.formats.compression import compress
from rmqctl.formats.properties import COMPRESSION_LZ4, COMPRESSION_ZSTD
from tests.hostile.making import (
    EVIL,
    NASTY,
    frames_of,
    hostile,
    log_file,
    queue_file,
    some_messages,
)
from tests.store.logs import frame


@hostile
def escapes_in_messages(root: Path) -> None:
    names = {NASTY.replace("\0", ""): NASTY.replace("\0", ""), "TAGS": NASTY, "KEYS": f"a {NASTY}", "UNIQ_KEY": NASTY}
    topic = NASTY.replace("\0", "")
    log = frames_of({"topic": topic, "body": NASTY.encode(), "properties": names}, {"body": bytes(range(256))})
    log_file(root, log)
    queue_file(root, topic, "0", [(0, 200, 0)])


@hostile
def escapes_in_names(root: Path) -> None:
    some_messages(root)
    nasty = NASTY.replace("\0", "").replace("/", "")
    for name in (nasty, "\u202egnp.exe", "[red]markup[/red]".replace("/", "")):
        (root / "commitlog" / name).write_bytes(b"x")
        queue_file(root, name, "0", [(0, 100, 0)])
        (root / "index").mkdir(exist_ok=True)
        (root / "index" / name).write_bytes(b"x")
        (root / name).write_bytes(b"x")
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / f"{name}.json").write_text("{}")
    os.close(os.open(os.fsencode(root) + b"/commitlog/\xff\xfe\x1b", os.O_CREAT))


@hostile
def topics_that_lead_elsewhere(root: Path) -> None:
    made: list[Mapping[str, object]] = [{"topic": topic} for topic in EVIL]
    lmq = {"INNER_MULTI_DISPATCH": ",".join(EVIL[:3]), "INNER_MULTI_QUEUE_OFFSET": "0,0,0"}
    made += [
        {"topic": "%LMQ%x", "properties": lmq},
        {"topic": "T", "queue_id": -5},
        {"topic": "T", "queue_id": 1 << 30},
    ]
    log_file(root, frames_of(*made))


@hostile
def sizes_of_frames(root: Path) -> None:
    """Every length field of a frame negative, zero, off by one and huge, one frame behind the other."""
    good = frame(0, b"body", properties={"A": "b"})
    places = [(0, 4), (84, 4), (92, 1), (94, 2)]
    values = [-1, 0, 1, 4, 90, 127, 255, 32767, -32768, 0x7FFFFFFF, -0x80000000, 0x40000000]
    log = b""
    for position, width in places:
        for value in values:
            one = bytearray(frame(len(log), b"body", properties={"A": "b"}))
            one[position : position + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
            log += bytes(one)
    log_file(root, log + good)


def claims(size: int) -> bytes:
    """Heads of frames one behind the other, each of which claims nearly all that is left."""
    head = bytearray(frame(0, b"")[:88])
    data = bytearray()
    while len(data) < size - 100:
        position = len(data)
        head[0:4] = (size - position).to_bytes(4, "big")
        head[28:36] = position.to_bytes(8, "big")
        head[84:88] = (size - position - 100).to_bytes(4, "big")
        data += head
    return bytes(data)


@hostile
def frames_that_claim_everything(root: Path) -> None:
    """A frame's head at every few bytes, each claiming most of the file: a search must not read all of it each time."""
    size = 4 * 1024 * 1024
    log_file(root, claims(size), size=size)


@hostile
def blank_frames_everywhere(root: Path) -> None:
    blank = struct.pack(">iI", 8, 0xCBD43194)
    log_file(root, frames_of({}) + blank * 5000 + struct.pack(">iI", -1, 0xCBD43194))


@hostile
def numbers_out_of_range(root: Path) -> None:
    """Times, offsets and flags at both ends of their types."""
    largest = (1 << 63) - 1
    log = b""
    for value in (largest, -largest - 1, -1, 253_402_300_800_000, 1 << 53):
        for field in ("store_timestamp", "queue_offset"):
            log += frame(len(log), b"x", topic=f"N{len(log) % 3}", properties={"KEYS": "k"}, **{field: value})  # type: ignore[arg-type]
    for flag in (0x7FFFFFFF & ~0x30, 0x700 | 1, 0x601, -0x80000000, 0xC0):
        log += frame(len(log), b"x", sys_flag=flag, properties={"INNER_NUM": "99999999999", "INNER_BASE": "-1"})
    for delay in ("soon", "-1", "9" * 5000, "\u0663"):
        log += frame(len(log), b"x", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": delay})
    log_file(root, log)
    queue_file(root, "N0", "0", [(0, 100, -1)])


@hostile
def queue_offsets_far_away(root: Path) -> None:
    """Made by a recovery as they say, these would fill any disk."""
    offsets = (0, 10**7, 10**9, 10**12, 1 << 58, 1 << 62)
    log_file(root, frames_of(*({"topic": f"F{at % 2}", "queue_offset": offset} for at, offset in enumerate(offsets))))


@hostile
def bombs(root: Path) -> None:
    """Bodies of some KiB that unpack to GiB; and one that is made of 90 000 empty frames."""
    plain = bytes(80 * 1024 * 1024)
    empty = compress(b"", COMPRESSION_LZ4)
    bodies = {
        0x1: zlib.compress(plain, 9),
        0x301: zlib.compress(zlib.compress(bytes(1 << 28), 9), 9),
        0x101: compress(plain, COMPRESSION_LZ4),
        0x201: compress(plain, COMPRESSION_ZSTD),
    }
    log = b""
    for sys_flag, body in bodies.items():
        log += frame(len(log), body, sys_flag=sys_flag)
    log += frame(len(log), empty * (1_000_000 // len(empty)), sys_flag=0x101)
    log += frame(len(log), b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 40, sys_flag=0x201)
    log_file(root, log, size=4 * 1024 * 1024)


@hostile
def properties_of_all_kinds(root: Path) -> None:
    separators = [
        b"\x02" * 32000,
        b"\x01" * 32000,
        (b"a\x01b\x02" * 8000)[:32000],
        b"KEYS\x01" + b"k " * 15000 + b"\x02",
    ]
    log = b""
    for stored in separators:
        one = bytearray(frame(len(log), b"x"))
        one[-2:] = len(stored).to_bytes(2, "big")
        one[0:4] = (len(one) + len(stored)).to_bytes(4, "big")
        log += bytes(one) + stored
    log_file(root, log, size=262144)
