"""What a broker makes of a store that was damaged and recovered: it sees what ours sees, and nothing good is lost."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.formats.message import StoredMessage
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.store.recover.report import RecoverReport
from tests.interop.views import BrokerView
from tests.proof.real_broker import seen
from tests.proof.real_broker.asked import Store
from tests.proof.real_broker.seen import Facts, Key, Seen, Slot
from tests.proof.real_broker.workload import LOG_FILE

_FOR_EVER = 1 << 62


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
    wrong = [f"{slot} lies in damage that was left" for slot in sorted(left & real.messages.keys())]
    wrong += [_again(mended, version, text, real) for text in view.complaints() if not _is_of_left(text, left)]
    real, ours = real.without(left), ours.without(left)
    wrong += _end(mended, real) + seen.differences(ours, real) + _lost(mended, real) + _new(mended, real)
    return [f"{mended.way}, then {version}: {text}" for text in wrong]


def _slot(message: StoredMessage) -> Slot:
    return Slot(message.topic, message.queue_id, message.queue_offset)


def _left(mended: Mended, *stores: Seen) -> set[Slot]:
    """The slots of what recover has left as it was and named."""
    spans = [(row["physical_offset"], row["end_offset"]) for row in mended.report.damaged]

    def is_left(begin: int, end: int) -> bool:
        return any(first < end and begin < last for first, last in spans)

    return {_slot(message) for message in mended.before if is_left(message.physical_offset, message.end)} | {
        slot for store in stores for slot, facts in store.messages.items() if is_left(facts.physical_offset, facts.end)
    }


def _is_of_left(complaint: str, left: set[Slot]) -> bool:
    """Whether a consumer stumbles; where that is another place than ours stumbles at, it is told anyway."""
    return bool(left) and complaint.startswith("not found by a consumer")


def _again(mended: Mended, version: str, complaint: str, real: Seen) -> str:
    """4.9.8 dispatches what is behind its queues once more."""
    behind = any(message.physical_offset >= real.messages_end() for message in mended.before)
    if version == "4.9.8" and complaint.startswith("changed: index/") and behind:
        return f"{complaint}, with messages of no queue at the log's end"
    return complaint


def _end(mended: Mended, real: Seen) -> list[str]:
    """Where the log ends with a blank, a broker goes on at that and ours behind it."""
    end = mended.report.end_offset
    if real.end == end:
        return []
    is_blank = end % LOG_FILE == 0 and real.messages_end() <= real.end < end <= real.end + LOG_FILE
    return [f"ends at {real.end}{', before the blank that ends the log' if is_blank else ''}, not at {end}"]


def _lost(mended: Mended, real: Seen) -> list[str]:
    end = mended.report.end_offset if mended.way == "cut" else _FOR_EVER
    return [
        f"{_slot(message)} at {message.physical_offset} was untouched and is lost"
        for message in mended.whole
        if has_queue_slot(message.sys_flag) and message.end <= end and not _is_there(real, message)
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
