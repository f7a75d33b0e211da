"""Every golden against what the real RocketMQ sees in it: messages, queues, offsets by time, lookups.

A truth is RocketMQ's view after its own load and recovery, ours is of the store as it lies there. Where the two may
differ is said by rules, never by names:

* RocketMQ cuts the log at `maxPhy`: what we see behind it, it threw away. A truth without `load` has no messages at
  all; then the truth of the store that this one was made from tells what stands where.
* RocketMQ keeps a message with a bad CRC where its recovery does not look (`checkOk` false; 4.9.8 does not even say so,
  but the body is no longer that of the store which this one was made from); to us it is damage.
* A queue is compared where RocketMQ left its files as they were and all its units lie before `maxPhy`. Other queues
  were mended or mangled by its recovery; for them every unit must be one that a message of the truth accounts for.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.layouts import MESSAGE_MAGIC_V1
from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import unit_tags_code
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.reader import StoreReader
from tests.goldens import GOLDENS, Row, base_of, truth
from tests.opened import damaged_messages, known_messages, reader, version_of
from tests.quick import goldens_of

NOTHING = -1


def _walked(name: str) -> tuple[dict[int, StoredMessage], list[Damage]]:
    messages: dict[int, StoredMessage] = {}
    damages: list[Damage] = []
    for record in walk(reader(name).files.log):
        if isinstance(record, StoredMessage):
            messages[record.physical_offset] = record
        elif isinstance(record, Damage):
            damages.append(record)
    return messages, damages


def _as_truth(message: StoredMessage) -> Row:
    """The fields of a truth's msg line, made from what was decoded."""
    properties = message.properties()
    # Java has no body at all where the length is 0
    stored = message.body or None
    plain = message.plain_body() if stored else None
    return {
        "phyOffset": message.physical_offset,
        "storeSize": message.total_size,
        "magic": message.magic_code - (1 << 32),
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "msgId": message.message_id,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": _java_host(str(message.born_host)),
        "storeHost": _java_host(str(message.store_host)),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "bodyLength": len(message.body),
        "bodySha256Raw": _digest(stored),
        "bodyLengthPlain": None if plain is None else len(plain),
        "bodySha256": _digest(plain),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "properties": properties,
        "checkOk": message.has_good_crc(),
        "checkSize": message.total_size,
        "dispatchTagsCode": unit_tags_code(message, properties, reader("clean").files.config.delay_levels()),
    }


def _digest(body: bytes | None) -> str | None:
    return None if body is None else hashlib.sha256(body).hexdigest()


def _java_host(text: str) -> str:
    """`/10.1.2.3:5` as Java prints an InetSocketAddress; IPv6 addresses are not shortened there."""
    address, _, port = text.rpartition(":")
    if not address.startswith("["):
        return f"/{text}"
    import ipaddress

    groups = ipaddress.IPv6Address(address[1:-1]).exploded.split(":")
    return f"/[{':'.join(f'{int(group, 16):x}' for group in groups)}]:{port}"


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_every_message_is_decoded_as_rocketmq_does(name: str) -> None:
    messages, damages = _walked(name)
    view = truth(name)
    known = known_messages(name)
    expected = {row["phyOffset"]: row for row in view.messages}
    bad = damaged_messages(name)
    for offset in bad:
        assert any(damage.physical_offset == offset for damage in damages), offset
        assert offset not in messages
    limit = view.summary["maxPhy"] if view.summary["load"] else 0
    assert expected.keys() - bad <= messages.keys()
    assert all(offset >= limit for offset in messages.keys() - expected.keys())
    for offset, message in messages.items():
        found = _as_truth(message)
        row = known[offset]
        assert found == {key: value for key, value in row.items() if key in found}, offset
        assert row.keys() - found.keys() == {"cq"}


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if base_of(name) is None))
def test_an_undamaged_log_has_no_damage(name: str) -> None:
    messages, damages = _walked(name)
    assert damages == []
    assert len(messages) == truth(name).summary["messages"]
    last = max(messages.values(), key=lambda message: message.physical_offset)
    assert last.end == truth(name).summary["maxPhy"]


def _queue_rows(name: str) -> list[tuple[Row, AnyConsumeQueue | None]]:
    table = reader(name).files.queues
    rows: list[tuple[Row, AnyConsumeQueue | None]] = []
    for row in truth(name).queues:
        on_disk = len(row["topic"].encode()) <= 255
        rows.append((row, table.find(row["topic"], row["queueId"]) if on_disk else None))
    return rows


def _files_of(row: Row, files: list[Row]) -> list[tuple[str, str]]:
    place = f"consumequeue/{row['topic']}/{row['queueId']}/"
    return [(file["path"], file["sha256"]) for file in files if file["path"].removeprefix("batch").startswith(place)]


def _is_comparable(name: str, row: Row, queue: AnyConsumeQueue | None) -> bool:
    """Whether RocketMQ saw this queue as it lies there: see the rules above."""
    summary = truth(name).summary
    if not summary["load"] or _files_of(row, summary["filesBefore"]) != _files_of(row, summary["filesAfter"]):
        return False
    return queue is None or all(unit.end <= summary["maxPhy"] for unit in queue.units(0))


def _unit_hash(view: QueueView, name: str, units: list[QueueUnit]) -> str:
    text = ""
    for unit in units:
        # 4.9.8 shows the address of an ext unit, 5.x what stands there
        code = unit.tags_code if version_of(name) == 4 else view.resolved_code(unit)
        text += f"{unit.queue_offset},{unit.physical_offset},{unit.size},{code}\n"
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_queues(name: str) -> None:
    compared = 0
    look = reader(name)
    for row, queue in _queue_rows(name):
        if not _is_comparable(name, row, queue):
            continue
        compared += 1
        place = (row["topic"], row["queueId"])
        if queue is None:
            assert (row["min"], row["max"], row.get("units", 0)) == (0, 0, 0), place
            continue
        minimum = queue.min_offset(look.files.log.min_offset)
        assert (minimum, queue.max_offset, queue.kind) == (row["min"], row["max"], row["cqType"]), place
        if "error" in row:
            continue
        units = list(queue.units(minimum))
        assert len(units) == row["units"], place
        assert _unit_hash(look.view(queue), name, units) == row["unitsSha256"], place
        assert look.store_time(*place, minimum) == row["earliestTime"], place
        for offset, time, physical_offset in row["storeTimestampAndPhyAt"]:
            assert look.store_time(*place, offset) == time, (place, offset)
            # RocketMQ shows no unit before the queue's minimum, which old files may still hold
            unit = queue.unit(offset) if offset >= minimum else None
            assert (unit.physical_offset if unit else 0) == physical_offset, (place, offset)
    if base_of(name) is None and not truth(name).summary["abortBefore"]:
        assert compared == len(truth(name).queues)


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_every_unit_is_one_that_a_message_accounts_for(name: str) -> None:
    known = known_messages(name)
    expected: set[tuple[str, int, int, int]] = set()
    for source in {base_of(name) or name, name}:
        for row in truth(source).messages:
            for unit in row["cq"] or []:
                expected.add((unit["topic"], unit["queueId"], unit["offset"], row["phyOffset"]))
    for queue in reader(name).files.queues.all():
        for unit in queue.units(0):
            if unit.is_written and unit.physical_offset in known:
                found = (queue.topic, queue.queue_id, unit.queue_offset, unit.physical_offset)
                assert found in expected


@pytest.mark.parametrize("name", goldens_of(GOLDENS, "innerbatch"))
def test_offset_by_time(name: str) -> None:
    compared = 0
    look = reader(name)
    for row, queue in _queue_rows(name):
        if queue is None or not _is_comparable(name, row, queue):
            continue
        times = [look.unit_store_time(unit) for unit in queue.units(row["min"])]
        for answer in row.get("offsetByTime", []):
            if version_of(name) == 4 and not _is_4x_answer_exact(queue, times, row, answer["ts"]):
                continue
            if None in times:
                # RocketMQ gives up at a message that is gone; we pass over it
                continue
            for boundary in ("lower", "upper"):
                if boundary in answer:
                    found = look.offset_at(row["topic"], row["queueId"], answer["ts"], boundary)
                    assert found == answer[boundary], (row["topic"], row["queueId"], answer, boundary)
                    compared += 1
    if base_of(name) is None and not truth(name).summary["abortBefore"]:
        assert compared > 0


def _is_4x_answer_exact(queue: AnyConsumeQueue, times: list[int | None], row: Row, timestamp: int) -> bool:
    """4.9.8 takes the first file not older than the time by its mtime, and in it any message of just that time, else
    the nearest: its answer is ours only for a time that one message has, in the file that it takes."""
    if times.count(timestamp) != 1:
        return False
    slot = row["min"] + times.index(timestamp)
    files = queue.files.files
    chosen = next((file for file in files if file.path.stat().st_mtime * 1000 >= timestamp), files[-1])
    return bool(chosen.start_offset <= slot * 20 < chosen.end_offset)


def _look(store: StoreReader, offset: int) -> str | None:
    try:
        message = store.lookup(offset)
    except (NotFoundError, CorruptError):
        return None
    return f"{message.topic}/{message.queue_id}/{message.queue_offset}/{message.message_id}"


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_lookups(name: str) -> None:
    view = truth(name)
    bad = damaged_messages(name)
    minimum = view.summary.get("minPhy", 0)
    for row in view.looks:
        offset = row["phyOffset"]
        found: Any = _look(reader(name), offset)
        if offset in bad:
            assert found is None  # RocketMQ hands out a message whose body is damaged
        elif 0 <= offset < minimum:
            assert found is None  # RocketMQ answers offset 0 from the first file that is left
        elif offset >= view.summary["maxPhy"]:
            assert found is None or offset in known_messages(name)  # RocketMQ cut it off
        else:
            assert found == row.get("found"), offset


def test_the_rules_leave_something_to_compare() -> None:
    rows = [
        (name, row) for name in GOLDENS for row, queue in _queue_rows(name)
        if _is_comparable(name, row, queue)
    ]  # fmt: skip
    broken = {name for name, _ in rows if base_of(name) is not None}
    assert len(rows) > 1500
    assert len(broken) > 20


def test_a_v1_magic_is_what_java_prints() -> None:
    assert MESSAGE_MAGIC_V1 - (1 << 32) == -626843481
