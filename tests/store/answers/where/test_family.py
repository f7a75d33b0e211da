"""Which stored messages are one: elements of a batch share a unique key, and retries name the one that they were."""

from __future__ import annotations

from rmqctl.formats.message import Host, StoredMessage, format_offset_message_id
from rmqctl.formats.properties import encode_properties
from rmqctl.store.answers.steps import families
from tests.opened import reader

_HOST = Host(b"\x7f\x00\x00\x01", 10911)


def _message(physical_offset: int, topic: str, reconsume_times: int = 0, **properties: str) -> StoredMessage:
    model = reader("clean").lookup(0)
    return model._replace(
        physical_offset=physical_offset,
        topic=topic,
        reconsume_times=reconsume_times,
        store_host_ip=_HOST.ip,
        store_host_port=_HOST.port,
        property_bytes=encode_properties(properties),
    )


def _retry_of(physical_offset: int, origin: int, topic: str = "%RETRY%g") -> StoredMessage:
    origin_id = format_offset_message_id(_HOST, origin)
    return _message(physical_offset, topic, 1, UNIQ_KEY="u", ORIGIN_MESSAGE_ID=origin_id, RETRY_TOPIC="T")


def test_retries_of_a_batch_belong_to_their_element() -> None:
    batch = [_message(offset, "T", UNIQ_KEY="u") for offset in (0, 100, 200)]
    retry, dead, lost = _retry_of(300, 100), _retry_of(400, 200, "%DLQ%g"), _retry_of(500, 77)
    found = families([lost, dead, *batch, retry])
    assert [(family.shown.physical_offset, [hop.physical_offset for hop in family.hops]) for family in found] == [
        (500, [500]),
        (200, [400]),
        (100, [300]),
        (0, []),
    ]
    assert [family.topic for family in found] == ["T"] * 4
    assert [len(family.again) for family in found] == [0, 2, 2, 2]


def test_a_message_that_was_sent_to_such_a_topic_is_its_own() -> None:
    (family,) = families([_message(0, "%DLQ%g", UNIQ_KEY="u")])
    assert (family.sent[0].topic, family.hops) == ("%DLQ%g", [])


def test_retries_without_a_unique_key_are_found_by_their_origin() -> None:
    origin = format_offset_message_id(_HOST, 0)
    retry = _message(50, "%RETRY%g", 1, ORIGIN_MESSAGE_ID=origin)
    (family,) = families([_message(0, "T", KEYS="k"), retry])
    assert [hop.physical_offset for hop in family.hops] == [50]
