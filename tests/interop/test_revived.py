"""What revive of a real 5.5.0 makes of messages in flight, against what the store alone says before its start."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.store import MessageStore
from tests.features import feature_store
from tests.interop.brokers import real_broker
from tests.interop.members import wait_for
from tests.network.serving import serving

pytestmark = pytest.mark.interop

SETTINGS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeTimerLog": "4096",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
KV = {"enableRetryTopicV2": "true", "popConsumerKVServiceEnable": "true", "popConsumerKVServiceInit": "true"}
_SECONDS = 120
Copies = Counter[tuple[str, str]]


def _copies(store: Path) -> Copies:
    """Messages of retry topics, by topic and key."""
    with MessageStore.open(store) as opened:
        found = [one for one in opened.messages() if one.topic.startswith("%RETRY%")]
        return Counter((one.topic, one.properties()["KEYS"]) for one in found)


def _predicted(store: Path) -> Copies:
    with MessageStore.open(store) as opened:
        waits = [one for one in opened.pop().messages() if one.state == "overdue" and one.next_topic is not None]
        copies: Copies = Counter()
        for one in waits:
            (message,) = opened.get(one.topic, one.queue_id, one.queue_offset, 1).messages
            copies[one.next_topic or "", message.properties()["KEYS"]] += 1
        return copies


def _acknowledged(store: Path) -> Copies:
    """Copies that would be made if no one had acknowledged a message."""
    with MessageStore.open(store) as opened:
        done = [one for one in opened.pop().messages() if one.state == "acknowledged"]
        keys = [(one, opened.get(one.topic, one.queue_id, one.queue_offset, 1).messages[0]) for one in done]
        return Counter((f"%RETRY%{one.group}_{one.topic}", message.properties()["KEYS"]) for one, message in keys)


@pytest.mark.parametrize(
    ("name", "settings", "is_moved", "finished"),
    [
        ("pop-fs", {}, False, None),
        ("pop-fs", {}, False, "g-work"),
        ("pop-kv", KV, False, None),
        ("pop-kv", {"enableRetryTopicV2": "true"}, True, None),
    ],
)
def test_revive_makes_the_copies_that_are_predicted(
    name: str, settings: dict[str, str], is_moved: bool, finished: str | None, tmp_path: Path
) -> None:
    store = feature_store(name, tmp_path)
    with MessageStore.open(store) as opened:
        assert len(opened.end_pops("g-fifo", "Steps", 0).rows) == 1
    if finished is not None:
        with MessageStore.open(store) as opened:
            assert opened.end_pops(finished, finish=True).skipped == 26
    if name == "pop-fs":  # else a broker that starts more than 7 days later passes over the records in its timer
        with MessageStore.open(store) as opened:
            assert opened.rebuild_timer().waiting > 0
    before, expected, acknowledged = _copies(store), _predicted(store), _acknowledged(store)
    assert expected
    if is_moved:  # what was in kvStore/ is in the revive topic then, where this broker finds it
        conf = tmp_path / "ours.conf"
        conf.write_text("enableRetryTopicV2=true\n", encoding="ascii")
        with serving(store, "--writable", "-c", str(conf)) as served:
            served.process.send_signal(signal.SIGINT)
            assert served.process.wait(60) == 0
    with real_broker("5.5.0", tmp_path, store, SETTINGS | settings, shut_down=True):
        wait_for(lambda: not expected - (_copies(store) - before), _SECONDS)
    made = _copies(store) - before
    # records that come at once may be read in two rounds, acknowledgements in the second one
    assert made - expected <= acknowledged if name == "pop-fs" else made == expected
    assert made >= expected
    with MessageStore.open(store) as opened:
        assert [one for one in opened.pop().groups() if one.way != "ordered" and one.overdue] == []
        # the broker has read what pop-release wrote
        assert ("Steps", 0) not in {
            (one.topic, one.queue_id) for one in opened.pop().messages() if one.way == "ordered"
        }
        assert not [one for one in opened.check() if one.severity.is_alarm]
