"""Messages from before a truncation, which moves positions and clears nothing (number 13 of the troubles)."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.check.catalogue import Finding, Severity
from rmqctl.store.check.cross import Level
from tests.goldens import GoldenStore
from tests.store.check.breaking import HEAD, bare, checked, codes, flip, get, messages, put, put_field

WARNING = Severity.WARNING
BRIDGE = "rmqctl recover --bridge"


def _of(findings: list[Finding], code: str) -> Finding:
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def with_old_messages_behind(store: Path) -> tuple[int, int]:
    """A truncation only moved the end; then a new message was written, shorter than what stood there.

    Returns where the log ends now, and how many messages it has.
    """
    all_messages = messages(store)
    at = next(
        number for number in range(len(all_messages) - 20, len(all_messages)) if all_messages[number].total_size > 260
    )
    cut = all_messages[at]
    donor = next(one for one in all_messages if one.total_size <= cut.total_size - 100 and one.topic == "TopicTest")
    queue = [
        one.queue_offset for one in all_messages[:at] if (one.topic, one.queue_id) == (donor.topic, donor.queue_id)
    ]
    frame = bytearray(get(store, donor.physical_offset, donor.total_size))
    # it was stored after everything that was cut, in the queue place that was free again
    for name, value in (
        ("physical_offset", cut.physical_offset),
        ("store_timestamp", all_messages[-1].store_timestamp + 10_000),
        ("queue_offset", max(queue) + 1),
    ):
        frame[HEAD.offset(name) : HEAD.offset(name) + 8] = value.to_bytes(8, "big")
    put(store, cut.physical_offset, bytes(frame))
    return cut.physical_offset + donor.total_size, at + 1


def test_13_old_messages_behind_the_end(golden_store: GoldenStore) -> None:
    store = bare(golden_store("clean"))
    before = messages(store)
    end, good = with_old_messages_behind(store)
    findings, summary = checked(store)
    stale = _of(findings, "RMQ-LOG-013")
    assert stale.severity is WARNING
    assert stale.physical_offset == before[good].physical_offset
    assert (stale.messages, stale.data_lost) == (2500 - good, False)
    assert summary.log_end == end
    assert stale.fix == "rmqctl repair --only RMQ-LOG-013"
    quick, _ = checked(store, Level.QUICK)
    assert _of(quick, "RMQ-LOG-013").physical_offset == stale.physical_offset
    assert not any(finding.fix == BRIDGE for finding in [*findings, *quick])


def test_13_old_messages_came_back(golden_store: GoldenStore) -> None:
    """The new message ends just where an old one begins: no damage between them, only time and places tell."""
    store = bare(golden_store("clean"))
    all_messages = messages(store)
    first = all_messages[2000]
    for message in all_messages[2000:]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 1500)
        put_field(store, message.physical_offset, "queue_offset", max(0, message.queue_offset - 1))
    findings, _ = checked(store)
    came_back = _of(findings, "RMQ-LOG-015")
    assert came_back.physical_offset == first.physical_offset
    assert (came_back.topic, came_back.queue_id) == (first.topic, first.queue_id)


def test_a_clock_that_went_back_brings_nothing_back(golden_store: GoldenStore) -> None:
    """Older times alone, with queue offsets that go on, are no messages of a former life."""
    store = bare(golden_store("clean"))
    for message in messages(store)[2000:]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 1500)
    findings, _ = checked(store)
    assert "RMQ-TIME-004" in codes(findings)
    assert "RMQ-LOG-015" not in codes(findings)


def test_damage_is_no_old_tail_because_the_clock_went_back(golden_store: GoldenStore) -> None:
    """Behind damage come messages with older times, but in the end the clock has caught up: they are of this log."""
    store = bare(golden_store("clean"))
    all_messages = messages(store)
    damaged = flip(store, all_messages[2480], HEAD.offset("magic_code"))
    for message in all_messages[2481:2490]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 100_000)
    findings, summary = checked(store)
    assert _of(findings, "RMQ-LOG-002").physical_offset == damaged
    assert "RMQ-LOG-013" not in codes(findings)
    assert (summary.messages, summary.log_end) == (2499, all_messages[-1].end)
