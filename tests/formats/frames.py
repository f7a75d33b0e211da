"""Frames for tests: the worked example of a real broker, and messages of every shape for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rmqctl.formats.message import Host, Message, frame_bytes, prepare_frame

# written by RocketMQ 5.3.3: topic TopicA, tag TagA, keys "k1 k2", body "hello"
EXAMPLE = bytes.fromhex(
    "0000007b daa320a7 3610a686 00000000 00000000 0000000000000000 0000000000000000 00000000 0000018bcfe5687b"
    "0a010203 0000d431 000001a1fb4a8c5d 7f000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f"
    "06 546f70696341 0015 4b455953 01 6b31206b32 02 54414753 01 54616741 02"
)

INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.builds(Host, st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), INT)
TEXT = st.characters(codec="utf-8", exclude_characters="\x01\x02")
TOPICS = st.one_of(
    st.text(TEXT, min_size=1, max_size=20).filter(lambda topic: len(topic.encode()) <= 127),
    st.integers(128, 300).map(lambda length: "t" * length),
)


def new_message(**fields: Any) -> Message:
    """A message whose other fields have their defaults, which `st.builds` would draw."""
    return Message(**fields)


MESSAGES = st.builds(
    new_message,
    topic=TOPICS,
    body=st.binary(max_size=60),
    queue_id=INT,
    flag=INT,
    properties=st.dictionaries(
        st.text(TEXT, min_size=1, max_size=6), st.text(TEXT, min_size=1, max_size=6), max_size=3
    ),
    sys_flag=st.sampled_from([0, 0x1, 0x2, 0x4, 0x8, 0xC, 0x101, 0x201, 0x301, 0xC0]),
    born_timestamp=LONG,
    born_host=HOSTS,
    reconsume_times=INT,
    prepared_transaction_offset=LONG,
)


def frame_of(
    message: Message,
    store_host: Host,
    *,
    queue_offset: int = 5,
    physical_offset: int = 1000,
    store_timestamp: int = 1_700_000_000_001,
    with_property_crc: bool = False,
) -> bytes:
    """The frame of `message` as the store writes it."""
    parts = prepare_frame(message, store_host, message.born_timestamp or 0, with_property_crc=with_property_crc)
    return frame_bytes(parts, queue_offset, physical_offset, store_timestamp)


def crc32_definition(data: bytes) -> int:
    """CRC-32 as crcmod defines it, against which the fast functions are held."""
    import crcmod.predefined

    return int(crcmod.predefined.mkCrcFun("crc-32")(data))
