"""After `recover`, both real brokers start on every golden a broker can open, serve all of it and change nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.recover.recover import RecoverReport, recover
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import broker_conf, properties, truth
from tests.interop import harness
from tests.interop.harness import NEWEST, VERSIONS, Job

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

# a broker does not start on it, and recover refuses to choose what is to go
NOT_OPENED = {"stray-file", "short-middle"}
# queues in a RocksDB are not written yet
NOT_RECOVERED = {"rocksdb"}
# topics longer than a directory name: a broker cannot make these queues either, and never stops cleanly
UNPLACEABLE = {"longtopic-toolong"}
# 4.9.8 reads no V2 frames (topics over 127) and knows no batch consume queues
ONLY_5 = {"longtopic", "innerbatch"}
# the broker cannot be told where this store's two commitlog folders are: the harness gives one per store
OTHER_PATHS = {"multipath"}
# the log has a hole where a file is missing: units point into it, and no broker serves those
HOLES = {"gap", "v4-gap", "v55-gap", "v55-gap-abort"}
# read through the compaction store, which this one is not about
COMPACTED_TOPIC = "CompactTopic"
NO_BODY = hashlib.sha256(b"").hexdigest()
LOG_GONE = {"log-gone", "log-gone-abort", "v4-log-gone", "v55-log-gone", "v55-log-gone-abort"}

NAMES = sorted(set(goldens.GOLDENS) - NOT_OPENED - NOT_RECOVERED - UNPLACEABLE)
# of these a truth tells where messages lie, and not what is in them
OF_5_5 = [name for name in goldens.OF_5_5 if name.removeprefix("v55-") not in (*NOT_OPENED, "controller", "syncflush")]


def recovered(name: str, folder: Path) -> tuple[Path, RecoverReport]:
    store = goldens.golden(name, folder)
    config = read_broker_conf(broker_conf(name, folder))
    try:
        with StoreFiles(store, config) as files:
            return store, recover(files)
    except RefusedError:
        with StoreFiles(store, config) as files:
            return store, recover(files, cut=True)


def expected_messages(name: str, end: int) -> dict[int, str]:
    """Physical offset to body digest of every message of the log that has a queue slot; "" where it is not known."""
    base = goldens.base_of(name)
    # the truth of a store that a broker refuses has no messages: its base's are what was in it
    rows = truth(name).messages or (truth(base).messages if base else [])
    return {
        row["phyOffset"]: row.get("bodySha256", "") if row.get("bodySha256", "") is not None else NO_BODY
        for row in rows
        if row["phyOffset"] < end and has_queue_slot(row["sysFlag"]) and row["topic"] != COMPACTED_TOPIC
    }


def is_expected(name: str, complaint: str) -> bool:
    """What a broker does with these stores whoever had them before."""
    if "not found by a consumer" in complaint:
        # a message that is gone with its file; 4.9.8 does not skip the queue of which all messages expired
        return name in HOLES or name.removeprefix("v55-").startswith("first-gone")
    if name in LOG_GONE:
        return complaint == "changed: commitlog"  # the folder is made again
    return name == "broker-real" and complaint == "changed: compaction/position-checkpoint.bak"


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_every_recovered_golden_and_change_nothing(version: str, tmp_path: Path) -> None:
    names = [name for name in NAMES if version != "4.9.8" or name not in ONLY_5]
    if version == NEWEST:
        # it opens the RocksDB that 5.3.3 left, and dispatches for it: keys are indexed once more
        names = [*(name for name in names if name != "rocksdb-double"), *OF_5_5]
    reports: dict[str, RecoverReport] = {}
    jobs = []
    for name in names:
        store, reports[name] = recovered(name, tmp_path)
        jobs.append(Job(store, properties(name)))
    complaints = []
    for name, view in zip(names, harness.open_many(version, jobs), strict=True):
        report = reports[name]
        found = [text for text in view.complaints() if not is_expected(name, text)]
        # a broker passes over no blank frame that no file follows
        is_before_blank = name in HOLES and report.end_offset % 262144 == 0
        if view.max_offset != report.end_offset and not is_before_blank:
            found.append(f"ends at {view.max_offset}, not at {report.end_offset}")
        if name in LOG_GONE:
            expected: dict[int, str] = {}
        else:
            expected = expected_messages(name, report.end_offset)
        seen = {message.physical_offset: message.body_sha256 for message in view.messages}
        if name == "compaction":
            seen = {offset: seen[offset] for offset in seen.keys() & expected.keys()}
        if "" in expected.values():
            seen = dict.fromkeys(seen, "")
        if seen != expected:
            wrong = sorted(offset for offset in expected if seen.get(offset) != expected[offset])
            found.append(f"serves {len(seen)} messages of {len(expected)}, wrong or missing: {wrong[:3]}")
        complaints += [f"{name}: {text}" for text in found]
    assert complaints == []
