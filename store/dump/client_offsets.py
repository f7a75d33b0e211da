"""The offsets of a broadcasting consumer in a dump: one item for each queue, then what is damaged."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.config_json import MAXIMUM_SIZE
from rmqctl.store.config.client_offsets import client_place, next_of_damaged, read_client_offsets
from rmqctl.store.dump.items import DumpField, DumpItem, Opened

CLIENT_OFFSET = "client offset"


def client_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Each queue's offset in an offsets.json, and its damage, from byte `at` on."""
    data = opened.read(0, min(opened.size, MAXIMUM_SIZE + 1))
    found = read_client_offsets(data)
    place = client_place(opened.path)
    if not found.offsets and found.damage is None:
        yield DumpItem("client offsets", 0, opened.size, note="no offsets are kept", raw=data)
    for one in found.offsets:
        if one.end <= at:
            continue
        size = one.end - one.begin
        values = {
            "client_id": place.client_id,
            "group": place.group,
            "topic": one.topic,
            "broker_name": one.broker_name,
            "queue_id": one.queue_id,
            "offset": one.offset,
        }
        fields = [DumpField(name, one.begin, size, value, str(value), "") for name, value in values.items()]
        yield DumpItem(CLIENT_OFFSET, one.begin, size, fields=fields, raw=data[one.begin : one.end])
    if found.damage is not None:
        begin = found.damaged_at
        item = DumpItem("client offsets", begin, opened.size - begin, raw=data[begin:])
        item.damage = found.damage
        item.note = next_of_damaged(opened.path)
        yield item
    elif found.why_not:
        yield DumpItem("client offsets", 0, opened.size, note=f"not loaded by clients of {found.why_not}")
