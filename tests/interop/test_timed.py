"""Messages with a delivery time of their own: Java producers at `serve`, and stores that go from broker to broker."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store import Message, MessageStore
from tests.features import feature_store
from tests.interop.brokers import java, real_broker, rmqctl
from tests.network.callers import with_header
from tests.network.serving import serving

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
LIMIT = 90
LOG_SIZE = 262_144
CONF = {
    "mappedFileSizeCommitLog": "4194304",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
SHORT = [f"{kind} {number}" for kind in ("seconds", "ms", "at") for number in range(3)]
LONG = ["long 0", "long 1"]


def _timed(folder: Path, namesrv: str, seconds: int, count: int) -> list[tuple[str, int]]:
    """Bodies that came, and how late (ms)."""
    lines = [line.split("\t") for line in java(VERSION, folder, "Timed", namesrv, "T", str(seconds), str(count))]
    assert {line[1] for line in lines if line[0] == "sent"} <= {"SEND_OK"}
    return [(line[1], int(line[2])) for line in lines if line[0] == "got"]


def _all(namesrv: str, count: int) -> Counter[str]:
    """Bodies of the topic, as soon as there are so many, and a little later: what comes too often comes soon."""

    def bodies() -> list[Any]:
        return [one["body"] for one in rmqctl("consume", "-n", namesrv, "-t", "T", code=None)]

    end = time.monotonic() + LIMIT
    while len(bodies()) < count and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(3)
    return Counter(bodies())


@pytest.mark.parametrize("precision", [1000, 100])
def test_times_are_kept_and_stores_go_from_broker_to_broker(precision: int, tmp_path: Path) -> None:
    conf, settings = tmp_path / "broker.conf", {**CONF, "timerPrecisionMs": str(precision)}
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="ascii")
    store = tmp_path / "store"
    with serving(store, "--writable", "--create", "-c", str(conf)) as served:
        client = Client(served.namesrv)
        queues = {"topic": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        client.ask(served.broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, queues))
        client.close()
        came = _timed(tmp_path, served.namesrv, 40, len(SHORT))
        assert Counter(body for body, _ in came) == Counter(SHORT)
        # the sender's clock was read before the broker's; a broker delivers to the second
        assert all(0 <= late < 2_000 + precision for _, late in came), came
        at = int(time.time() * 1000) + 2_000
        rmqctl("produce", "-n", served.namesrv, "-t", "T", "--body", "ours at", "--deliver-at", str(at))
        rmqctl("produce", "-n", served.namesrv, "-t", "T", "--body", "ours after", "--deliver-after", "2s")
        expected = Counter([*SHORT, "ours at", "ours after"])
        assert _all(served.namesrv, expected.total()) == expected
        rmqctl("produce", "-n", served.namesrv, "-t", "T", "--body", "ours long", "--deliver-after", "40s")
        assert served.end() == 0
        assert "Traceback" not in served.errors
    # the real broker delivers what waits, once, and nothing that was delivered
    with real_broker(VERSION, tmp_path / "real", store, settings, shut_down=True) as real:
        expected += Counter([*LONG, "ours long"])
        assert _all(real.namesrv, expected.total()) == expected
        rmqctl("produce", "-n", real.namesrv, "-t", "T", "--body", "theirs", "--deliver-after", "45s")
        rmqctl("produce", "-n", real.namesrv, "-t", "T", "--body", "theirs soon", "--deliver-after", "1s")
        expected["theirs soon"] += 1
        assert _all(real.namesrv, expected.total()) == expected
    # and we deliver what waits on its wheel
    with serving(store, "--writable", "-c", str(conf)) as served:
        expected["theirs"] += 1
        assert _all(served.namesrv, expected.total()) == expected
        assert served.end() == 0
        assert "Traceback" not in served.errors


@pytest.mark.parametrize(
    ("version", "verb"), [(version, verb) for version in ("5.3.3", "5.5.0") for verb in ("truncate", "recover")]
)
def test_a_message_in_a_slot_of_the_timer_that_was_cut_is_delivered(version: str, verb: str, tmp_path: Path) -> None:
    """After a cut the timer's next messages take queue offsets that its files knew: a real broker delivers them."""
    store = feature_store("timer-clean-533", tmp_path)
    with MessageStore.open(store) as opened:
        first = opened.get("rmq_sys_wheel_timer", 0, 190, 1).messages[0]
        if verb == "truncate":
            opened.truncate(first.physical_offset)
        else:
            path = store / "commitlog" / f"{first.physical_offset // LOG_SIZE * LOG_SIZE:020}"
            data = bytearray(path.read_bytes())
            data[first.physical_offset % LOG_SIZE + 4] ^= 0xFF
            path.write_bytes(data)
            opened.recover(cut=True)
        assert [finding.code for finding in opened.check() if finding.severity.is_alarm] == []
    settings = {
        **CONF,
        "mappedFileSizeCommitLog": str(LOG_SIZE),
        "mappedFileSizeConsumeQueue": "2000",
        "mappedFileSizeTimerLog": "4096",
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
    }
    with real_broker(version, tmp_path / "real", store, settings) as real:
        rmqctl("topics", "create", "-n", real.namesrv, "-t", "T", code=None)
        for number in range(3):
            rmqctl("produce", "-n", real.namesrv, "-t", "T", "--body", f"after {number}", "--deliver-after", "2s")
        assert _all(real.namesrv, 3) == Counter(f"after {number}" for number in range(3))


_REBUILT = {
    **CONF,
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeTimerLog": "4096",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


def _delivered(store: Path) -> Counter[tuple[str, str]]:
    """Topic and unique key of what a timer delivered."""
    with MessageStore.open(store) as opened:
        found = [(one.topic, one.properties()) for one in opened.messages()]
    return Counter((topic, of["UNIQ_KEY"]) for topic, of in found if "TIMER_DEQUEUE_MS" in of)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_broker_delivers_each_message_of_a_rebuilt_timer_once(version: str, tmp_path: Path) -> None:
    """Wheel, log and checkpoint are gone: those due already come at once, one that is not due not before its second."""
    store = feature_store("timer-clean-533", tmp_path)
    for name in ("timerwheel", "config/timercheck"):
        (store / name).unlink()
    shutil.rmtree(store / "timerlog")
    out = (int(time.time()) + 30) * 1000
    timed = {"TIMER_OUT_MS": str(out), "REAL_TOPIC": "Later", "REAL_QID": "0", "UNIQ_KEY": "not yet"}
    with MessageStore.open(store, "rw") as opened:
        opened.put(Message("rmq_sys_wheel_timer", b"x", queue_id=0, properties=timed))
    before = _delivered(store)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeTimerLog=4096\n", encoding="ascii")
    (report,) = rmqctl("rebuild", "-s", str(store), "-c", str(conf), "--timer")
    # two of them are due days after the store was made
    assert (report["waiting"], report["delivered"]) == (164, before.total())
    assert report["due_already"] in (161, 162, 163)
    with real_broker(version, tmp_path / "real", store, _REBUILT):
        end = time.monotonic() + LIMIT
        while _delivered(store)["Later", "not yet"] == 0 and time.monotonic() < end:
            time.sleep(0.5)
        # a busy machine's broker may be late, none is early
        assert out <= time.time() * 1000
        time.sleep(2)
        after = _delivered(store)
    assert after.total() == before.total() + report["due_already"] + 1
    assert set(after.values()) == {1}
