"""After `recover --bridge` both real brokers start on stores with damage inside, serve every other message, and find a
filler in the place of each lost one: no queue has a hole."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.recover.bridge import DAMAGED_PROPERTY, PADDING_TOPIC, recover_bridging
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import broker_conf, properties, truth
from tests.interop import harness
from tests.interop.harness import VERSIONS, Job
from tests.interop.views import BrokerView

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

NO_BODY = hashlib.sha256(b"").hexdigest()
FILE = 262144


class Case(NamedTuple):
    """A golden, what is done to it besides, and the messages that are damaged: physical offsets [begin, end)."""

    golden: str
    begin: int
    end: int
    damage: Callable[[Path], object] = lambda store: None
    # queues and index may be gone as well: then only the slots tell
    without: tuple[str, ...] = ()


def _log(store: Path, offset: int) -> Path:
    return store / "commitlog" / f"{offset - offset % FILE:020d}"


def zeroed(begin: int, end: int) -> Callable[[Path], None]:
    """Bytes [begin, end) of the log become zeros, across files."""

    def damage(store: Path) -> None:
        position = begin
        while position < end:
            stop = min(end, position - position % FILE + FILE)
            with _log(store, position).open("r+b") as file:
                file.seek(position % FILE)
                file.write(bytes(stop - position))
            position = stop

    return damage


def garbled(begin: int, end: int) -> Callable[[Path], None]:
    """Bytes [begin, end) of one file become garbage."""

    def damage(store: Path) -> None:
        with _log(store, begin).open("r+b") as file:
            file.seek(begin % FILE)
            file.write(hashlib.shake_128(b"%d" % begin).digest(end - begin))

    return damage


def removed(*starts: int) -> Callable[[Path], None]:
    """Whole files of the log are gone."""

    def damage(store: Path) -> None:
        for start in starts:
            _log(store, start).unlink()

    return damage


def swapped(one: int, other: int) -> Callable[[Path], None]:
    """Two files of the log have each other's names; what lies between them is whole."""

    def damage(store: Path) -> None:
        contents = _log(store, one).read_bytes(), _log(store, other).read_bytes()
        _log(store, one).write_bytes(contents[1])
        _log(store, other).write_bytes(contents[0])

    return damage


CASES: dict[str, Case] = {
    "crc-flip-old": Case("crc-flip-old", 402516, 402517),
    "crc-flip-old-abort": Case("crc-flip-old-abort", 402516, 402517),
    "crc-flip-third": Case("crc-flip-third", 1695806, 1695807),
    "crc-flip-last": Case("crc-flip-last", 2106230, 2106231),
    "v4-crc-flip-old": Case("v4-crc-flip-old", 402371, 402372),
    "v4-crc-flip-last-abort": Case("v4-crc-flip-last-abort", 2105616, 2105617),
    "gap": Case("gap", 1048576, 1310720),
    "v4-gap": Case("v4-gap", 1048576, 1310720),
    "short-middle": Case("short-middle", 667058, 786432),
    # the blank frame of one stands where the other one has its last messages
    "files-swapped": Case("clean", 1048576, 1835008, swapped(1048576, 1572864)),
    "neighbours-swapped": Case("clean", 786432, 1310720, swapped(786432, 1048576)),
    "v4-neighbours-swapped": Case("v4-clean", 262144, 786432, swapped(262144, 524288)),
    "zeros": Case("clean", 600000, 700000, zeroed(600000, 700000)),
    "zeros-over-a-file-end": Case("clean", 500000, 600000, zeroed(500000, 600000)),
    "zeros-at-the-start": Case("clean", 0, 5000, zeroed(0, 5000)),
    "garbage": Case("crash", 1200000, 1201000, garbled(1200000, 1201000)),
    "two-files-gone": Case("clean", 524288, 1048576, removed(524288, 786432)),
    "without-queues": Case("clean", 1048576, 1310720, removed(1048576), ("consumequeue", "index")),
    "garbage-without-queues": Case(
        "v4-clean", 900000, 960000, garbled(900000, 960000), ("consumequeue",)
    ),
    "delays-and-transactions": Case("features", 150000, 200000, garbled(150000, 200000)),
    "frame-checksums": Case("propcrc", 50000, 90000, garbled(50000, 90000)),
    # inner batches: one that only fails its CRC, six in a row, a gap of 18 offsets and one of 10, and one over ordinary
    # messages too
    "batch-crc": Case("innerbatch", 155069, 155635, garbled(155400, 155401)),
    "batch-crc-without-queues": Case(
        "innerbatch", 155069, 155635, garbled(155400, 155401), ("batchconsumequeue", "consumequeue", "index")
    ),
    "batches": Case("innerbatch", 155069, 158528, garbled(155069, 158528)),
    "batches-without-queues": Case(
        "innerbatch", 155069, 158528, garbled(155069, 158528), ("batchconsumequeue", "consumequeue", "index")
    ),
    "batches-and-others": Case("innerbatch", 120000, 160000, garbled(120000, 160000)),
}  # fmt: skip
BATCHES = [name for name, case in CASES.items() if case.golden == "innerbatch"]


def cases(version: str) -> list[str]:
    """4.9.8 has no queues of 46-byte units."""
    return [name for name in CASES if version != "4.9.8" or name not in BATCHES]


def bridged(name: str, folder: Path) -> tuple[Path, RecoverReport]:
    case = CASES[name]
    store = goldens.golden(case.golden, folder / name)
    case.damage(store)
    for directory in case.without:
        shutil.rmtree(store / directory)
    config = read_broker_conf(broker_conf(case.golden, folder / name))
    with StoreFiles(store, config) as files:
        report = recover_bridging(files)
    with StoreFiles(store, config) as files:
        again = recover_bridging(files)
    assert (again.operations, again.bridged) == ([], [])
    return store, report


def complaints_about(name: str, report: RecoverReport, view: BrokerView) -> list[str]:
    case = CASES[name]
    base = goldens.base_of(case.golden)
    rows = truth(case.golden).messages
    if base is not None and len(truth(base).messages) > len(rows):
        rows = truth(base).messages
    found = view.complaints()
    if view.max_offset != report.end_offset:
        found.append(f"ends at {view.max_offset}, not at {report.end_offset}")
    spans = [(row["physical_offset"], row["end_offset"]) for row in report.bridged]
    lost = [
        row
        for row in rows
        if any(begin < row["phyOffset"] + row["storeSize"] and row["phyOffset"] < end for begin, end in spans)
    ]
    assert lost
    assert all(case.begin < row["phyOffset"] + row["storeSize"] and row["phyOffset"] < case.end for row in lost)
    gone = {row["phyOffset"] for row in lost}
    expected = {
        row["phyOffset"]: row["bodySha256"] or NO_BODY
        for row in rows
        if row["phyOffset"] not in gone and has_queue_slot(row["sysFlag"])
    }
    seen = {m.physical_offset: m.body_sha256 for m in view.messages if DAMAGED_PROPERTY not in m.properties}
    short = {m.physical_offset: m for m in view.messages if m.physical_offset not in expected}
    seen = {offset: digest for offset, digest in seen.items() if offset not in short}
    if seen != expected:
        wrong = sorted(offset for offset in expected if seen.get(offset) != expected[offset])
        found.append(f"serves {len(seen)} messages of {len(expected)}, wrong or missing: {wrong[:3]}")
    slots = {(row["topic"], row["queueId"], row["queueOffset"]) for row in lost if has_queue_slot(row["sysFlag"])}
    fillers = {(m.topic, m.queue_id, m.queue_offset) for m in short.values()}
    if fillers - slots:
        found.append(f"fillers that nobody lost: {sorted(fillers - slots)[:3]}")
    # that of a batch takes several offsets, and may stand for several batches
    fillers |= {
        (m.topic, m.queue_id, offset)
        for m in short.values()
        for offset in range(m.queue_offset, m.queue_offset + int(m.properties.get("INNER_NUM", "1")))
    }
    known = {(m.asked_topic, m.asked_queue_id): m.queue_offset for m in view.messages}
    # only of a message behind which its queue has no other one nothing may be left
    missing = [slot for slot in slots - fillers if slot[2] < known.get(slot[:2], -1)]
    if missing or (slots - fillers and not case.without):
        found.append(f"slots without a filler: {sorted(slots - fillers)[:3]} of {len(slots)}")
    if any(m.topic == PADDING_TOPIC for m in view.messages):
        found.append("padding is in a queue")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_everything_around_the_damage(version: str, tmp_path: Path) -> None:
    reports: dict[str, RecoverReport] = {}
    jobs = []
    for name in cases(version):
        store, reports[name] = bridged(name, tmp_path)
        jobs.append(Job(store, properties(CASES[name].golden)))
    views = harness.open_many(version, jobs)
    complaints = [
        f"{name}: {text}"
        for name, view in zip(reports, views, strict=True)
        for text in complaints_about(name, reports[name], view) + batches_not_dense(name, view)
    ]
    assert complaints == []


def batches_not_dense(name: str, view: BrokerView) -> list[str]:
    """Where RocketMQ does not lead a consumer from batch to batch, from the start of a batch queue to its end."""
    found: list[str] = []
    for row in truth(CASES[name].golden).queues if name in BATCHES else ():
        if row["topic"] == "InnerBatchTopic":
            asked = [m for m in view.messages if (m.asked_topic, m.asked_queue_id) == (row["topic"], row["queueId"])]
            end = 0
            for message in asked:
                if message.queue_offset != end:
                    found.append(f"after {end} comes {message.queue_offset}")
                end = message.next_offset
            if end != row["max"]:
                found.append(f"ends at {end}, not at {row['max']}")
    return found


def test_5_builds_the_same_units_of_batch_fillers(tmp_path: Path) -> None:
    """Without queues and after a crash it dispatches the whole log anew: what it writes is what we wrote."""
    jobs, written = [], []
    for name in BATCHES:
        store, _ = bridged(name, tmp_path)
        files = sorted((store / "batchconsumequeue").rglob("0*0"))
        written.append({path: path.read_bytes() for path in files if path.is_file()})
        assert len(written[-1]) == 4
        for directory in ("batchconsumequeue", "consumequeue", "index"):
            shutil.rmtree(store / directory)
        (store / "abort").touch()
        jobs.append(Job(store, properties("innerbatch")))
    views = harness.open_many("5.3.3", jobs)
    for name, view, units in zip(BATCHES, views, written, strict=True):
        assert (view.load_ok, view.exception, view.anomalies) == (True, None, []), name
        assert {path: path.read_bytes() for path in units} == units, name


def test_a_brokers_delay_service_passes_over_fillers(tmp_path: Path) -> None:
    store, report = bridged("delays-and-transactions", tmp_path)
    settings = {**properties("features"), "harness.deliverDelayed": "true"}
    view = harness.open_store("4.9.8", store, settings)
    assert view.max_offset == report.end_offset  # nothing was delivered into any topic
    # 5.3.3 has the same lines (ScheduleMessageService); only 4.9.8 has the service in its store
    assert "the real topic of schedule msg is RMQ_SYS_TRANS_HALF_TOPIC, discard the msg" in view.log
