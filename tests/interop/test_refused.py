"""Messages with a number that does not parse: where the real brokers end their log, check, predict and recover do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.config.releases import RELEASES
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import predict
from rmqctl.store.recover.bridge import DAMAGED_PROPERTY
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import broker_conf, properties
from tests.interop import harness
from tests.interop.harness import NEWEST, VERSIONS, Job

pytestmark = pytest.mark.interop

# golden, the number, what takes its place, and the versions that end their log there
BROKEN = {
    "delay": ("features", b"DELAY\x013", b"DELAY\x01x", VERSIONS),
    "blank": ("features", b"DELAY\x013", b"DELAY\x01 ", VERSIONS),
    "plus": ("features", b"DELAY\x0113", b"DELAY\x01+3", ()),
    "batch": ("innerbatch", b"INNER_NUM\x015", b"INNER_NUM\x01x", (NEWEST, "5.3.3")),
}


def _broken(folder: Path, case: str, *, crashed: bool) -> tuple[Path, StoreConfig, int]:
    """Unpack a golden and break one number; its config, and where the message begins."""
    name, old, new, _ = BROKEN[case]
    store = goldens.golden(name, folder)
    path = store / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    at = data.find(old)
    if at < 0:
        pytest.skip(f"no message of {name} has {old!r}")
    path.write_bytes(data[:at] + new + data[at + len(old) :])
    if crashed:
        (store / "abort").write_bytes(b"1")
        (store / "checkpoint").unlink()
    config = read_broker_conf(broker_conf(name, folder))
    with StoreFiles(store, config) as files:
        begin = next(m.physical_offset for m in _messages(files) if m.physical_offset <= at < m.end)
    return store, config, begin


def _messages(files: StoreFiles) -> Iterator[StoredMessage]:
    return (record for record in walk(files.log) if isinstance(record, StoredMessage))


def _ready(version: str) -> None:
    reason = harness.available(version)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_ends_its_log_where_we_say(tmp_path: Path, version: str) -> None:
    _ready(version)
    jobs, cases = [], [case for case in BROKEN if version != "4.9.8" or case != "batch"]
    expected = []
    for case in cases:
        store, config, begin = _broken(tmp_path / case, case, crashed=True)
        with StoreFiles(store, config) as files:
            end = max(m.end for m in _messages(files))
            ends = version in BROKEN[case][3]
            expected.append(begin if ends else end)
            if version in RELEASES:
                assert predict(files, version).end_offset == expected[-1], case
        with MessageStore.open(store, config=config) as opened:
            found = {one.code for one in opened.check() if one.physical_offset == begin}
        assert bool(found & {"RMQ-LOG-033", "RMQ-LOG-034"}) == bool(BROKEN[case][3]), case
        jobs.append(Job(store, properties(BROKEN[case][0])))
    views = harness.open_many(version, jobs)
    assert [view.max_offset for view in views] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_keeps_all_that_recover_bridge_leaves(tmp_path: Path, version: str) -> None:
    _ready(version)
    jobs, counts = [], []
    for case in ("delay", "batch"):
        if version == "4.9.8" and case == "batch":
            continue
        store, config, begin = _broken(tmp_path / case, case, crashed=True)
        with StoreFiles(store, config) as files, pytest.raises(RefusedError) as refusal:
            recover(files)
        assert refusal.value.physical_offset == begin
        with MessageStore.open(store, config=config) as opened:
            opened.recover(bridge=True)
        with StoreFiles(store, config) as files:
            counts.append(max(message.end for message in _messages(files)))
        jobs.append(Job(store, properties(BROKEN[case][0])))
    for job, view, end in zip(jobs, harness.open_many(version, jobs), counts, strict=True):
        changed = [text for text in view.complaints() if text.startswith("changed: commitlog")]
        assert (view.max_offset, changed, view.exception) == (end, [], None), job.store
        assert any(DAMAGED_PROPERTY in message.properties for message in view.messages) or version == "4.9.8"
