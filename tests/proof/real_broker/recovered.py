"""What a broker makes of a store that was damaged and recovered: it sees what ours sees, and nothing good is lost."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, QueueKey
from rmqctl.store.recover.report import RecoverReport
from tests.interop.views import BrokerView
from tests.proof.real_broker import seen
from tests.proof.real_broker.asked import Store
from tests.proof.real_broker.seen import Facts, Key, Queue, Seen, Slot
from tests.proof.real_broker.workload import LOG_FILE, QUEUE_FILE

_FOR_EVER = 1 << 62
_STUMBLED = "not found by a consumer"
_PLACEHOLDER = (0, PLACEHOLDER_SIZE, 0)
_UNITS = QUEUE_FILE // CONSUMEQUEUE_UNIT.size


class Mended(NamedTuple):
    """A recovered store, in which way, with what report; the messages `before` the damage, and those of them that it
    left `whole`."""

    store: Store
    way: str
    report: RecoverReport
    before: list[StoredMessage]
    whole: list[StoredMessage]


def complaints(mended: Mended, version: str, view: BrokerView, keys: list[Key]) -> list[str]:
    """What a broker of this version sees otherwise than it should."""
    real, ours = seen.by_broker(view), seen.by_us(mended.store.root, mended.store.config, keys)
    left = _left(mended, real, ours)
    expired = _expired(version, real, ours)
    begun = _begun_in_an_expired_file(real, ours)
    passed = real.passed_over() if left else set()
    wrong = [f"{slot} lies in damage that was left" for slot in sorted(left & real.messages.keys())]
    wrong += [f"{slot} is passed over behind damage that was left" for slot in sorted(passed & ours.messages.keys())]
    wrong += [f"{queue} has expired as a whole" for queue in sorted(expired)]
    wrong += [f"{queue} begins in a file that has expired" for queue in sorted(begun)]
    wrong += [_again(mended, text, real) for text in view.complaints() if not text.startswith(_STUMBLED)]
    apart = left | passed | {slot for slot in real.stumbled if slot[:2] in expired}
    apart |= {slot for slot in real.stumbled if slot[:2] in begun and slot.queue_offset < ours.queues[slot[:2]].begin}
    real, ours = real.without(apart), ours.without(apart)
    ours = ours._replace(queues=ours.queues | {queue: real.queues[queue] for queue in expired | begun})
    wrong += [
        f"nobody can {'unpack' if slot in ours.packed else 'read'} {slot}"
        for slot in sorted(real.stumbled.keys() & ours.stumbled.keys())
    ]
    real = _without_placeholders(real, ours, wrong)
    wrong += _end(mended, real) + seen.differences(ours, real) + _lost(mended, real, passed) + _new(mended, real)
    return [f"{mended.way}, then {version}: {text}" for text in wrong]


def _slot(message: StoredMessage) -> Slot:
    return Slot(message.topic, message.queue_id, message.queue_offset)


def _left(mended: Mended, *stores: Seen) -> set[Slot]:
    """The slots of what recover has left as it was and named."""
    spans = [(row["physical_offset"], row["end_offset"]) for row in mended.report.damaged]

    def is_left(begin: int, end: int) -> bool:
        return any(first < end and begin < last for first, last in spans)

    placed = [message for message in mended.before if has_queue_slot(message.sys_flag)]
    return {_slot(message) for message in placed if is_left(message.physical_offset, message.end)} | {
        slot for store in stores for slot, facts in store.messages.items() if is_left(facts.physical_offset, facts.end)
    }


def _expired(version: str, real: Seen, ours: Seen) -> set[QueueKey]:
    """Queues of which the log has no message any more: 4.9.8 asks for them once more."""
    if version != "4.9.8":
        return set()
    return {
        key
        for key, queue in ours.queues.items()
        if queue.begin == queue.end
        and key in real.queues
        and real.queues[key].end == queue.end
        and all(at < real.begin for at, _, _ in real.queues[key].units)
    }


def _begun_in_an_expired_file(real: Seen, ours: Seen) -> set[QueueKey]:
    """Queues of which no message of the first file is there any more: a broker looks for their begin there alone."""

    def is_begun(queue: Queue, theirs: Queue) -> bool:
        before = queue.begin - theirs.begin
        return (
            theirs.begin // _UNITS < queue.begin // _UNITS
            and theirs.end == queue.end
            and theirs.units[before:] == queue.units
            and all(at < real.begin for at, _, _ in theirs.units[:before])
        )

    return {key for key, queue in ours.queues.items() if key in real.queues and is_begun(queue, real.queues[key])}


def _without_placeholders(real: Seen, ours: Seen, wrong: list[str]) -> Seen:
    """Queues begin with their first message; where a broker counts placeholders before it, that is told in `wrong`."""
    queues = dict(real.queues)
    for key, queue in real.queues.items():
        count = next((number for number, unit in enumerate(queue.units) if unit != _PLACEHOLDER), len(queue.units))
        if count and key in ours.queues and ours.queues[key].begin == queue.begin + count:
            wrong.append(f"{key} begins with placeholders")
            queues[key] = Queue(queue.begin + count, queue.end, queue.units[count:])
    return real._replace(queues=queues)


def _again(mended: Mended, complaint: str, real: Seen) -> str:
    """A broker dispatches what is behind its queues once more."""
    behind = any(message.physical_offset >= real.messages_end() for message in mended.before)
    if complaint.startswith("changed: index/") and behind:
        return f"{complaint}, with messages of no queue at the log's end"
    return complaint


def _end(mended: Mended, real: Seen) -> list[str]:
    """Where the log ends with a blank, a broker goes on at that and ours behind it."""
    end = mended.report.end_offset
    if real.end == end:
        return []
    is_blank = end % LOG_FILE == 0 and real.messages_end() <= real.end < end <= real.end + LOG_FILE
    return [f"ends at {real.end}{', before the blank that ends the log' if is_blank else ''}, not at {end}"]


def _lost(mended: Mended, real: Seen, passed: set[Slot]) -> list[str]:
    end = mended.report.end_offset if mended.way == "cut" else _FOR_EVER
    return [
        f"{_slot(message)} at {message.physical_offset} was untouched and is lost"
        for message in mended.whole
        if has_queue_slot(message.sys_flag)
        and message.end <= end
        and not _is_there(real, message)
        and _slot(message) not in passed
    ]


def _is_there(real: Seen, message: StoredMessage) -> bool:
    facts = real.messages.get(_slot(message))
    return facts is not None and facts.physical_offset == message.physical_offset


def _new(mended: Mended, real: Seen) -> list[str]:
    """What is neither a message that was there, whatever became of the bytes that no checksum covers, nor a filler."""
    places = {message.physical_offset for message in mended.before}
    spans = [(row["physical_offset"], row["end_offset"]) for row in mended.report.bridged]

    def is_known(facts: Facts) -> bool:
        at = facts.physical_offset
        return at in places or any(begin <= at < end for begin, end in spans)

    return [f"{slot} at {facts.physical_offset} is new" for slot, facts in real.messages.items() if not is_known(facts)]
