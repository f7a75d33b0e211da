"""RocketMQ in DLedger mode cuts and dispatches what is predicted, and loses nothing of what `recover` leaves."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqctl.store.config.config import config_from_properties, read_broker_conf
from rmqctl.store.config.releases import RELEASES
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.predict.entries import DledgerStart
from rmqctl.store.predict.predicting import predict
from rmqctl.store.predict.prediction import Prediction, Start
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import broker_conf, golden, log_golden, properties
from tests.interop import harness
from tests.interop.brokers import real_broker
from tests.interop.harness import NEWEST, VERSIONS, BrokerView, Job
from tests.interop.replicas import free_port
from tests.interop.starts import differences, simulated
from tests.store.recover.test_entries import HEAD, UNIT, data_file, entries_of, index_file, put, put_at
from tests.store.write.writing import stored_messages

pytestmark = pytest.mark.interop

# what a member writes at each start and stop
_OWN = {f"dledger-n0/{name}{suffix}" for name in ("checkpoint", "currterm") for suffix in ("", ".bak")}


def _nothing(_: Path) -> None:
    """As RocketMQ left it."""


def _crashed(store: Path) -> None:
    (store / "abort").write_bytes(b"1")


def _torn(store: Path) -> None:
    _crashed(store)
    last = entries_of(store)[-1]
    put_at(store, last.pos + last.size - 200, bytes(200))


def _half_head(store: Path) -> None:
    _crashed(store)
    last = entries_of(store)[-1]
    put_at(store, last.pos + 20, bytes(last.size - 20))


def _wrong_number(store: Path) -> None:
    put_at(store, entries_of(store)[-30].pos + 15, b"\7")


def _wrong_sizes(store: Path) -> None:
    _crashed(store)
    put_at(store, entries_of(store)[-300].pos + HEAD - 4, b"\7")


def _damaged_message(store: Path) -> None:
    put_at(store, entries_of(store)[100].pos + HEAD + 90, b"\xff\xff")


def _units(store: Path) -> None:
    put(index_file(store), 5 * UNIT + 15, b"\x7f")


def _no_index(store: Path) -> None:
    _crashed(store)
    shutil.rmtree(index_file(store).parent)


def _no_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")


def _zeros_after(store: Path) -> None:
    last = entries_of(store)[-1]
    path = data_file(store, last.pos)
    with path.with_name(f"{int(path.name) + path.stat().st_size:020d}").open("wb") as file:
        file.truncate(path.stat().st_size)


_DAMAGE: tuple[Callable[[Path], None], ...] = (
    _nothing, _crashed, _torn, _half_head, _wrong_number, _wrong_sizes, _damaged_message, _units, _no_index, _no_queues,
    _zeros_after,
)  # fmt: skip


_SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "enableCompaction": "false",
    "timerWheelEnable": "false",
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "golden",
    "dLegerSelfId": "n0",
}
_CONFIG = config_from_properties(_SETTINGS)


def _job(store: Path, end: int = 0) -> Job:
    """`end`: where the log ends once the member leads its group and has committed all that it holds."""
    settings = _SETTINGS | {"dLegerPeers": f"n0-127.0.0.1:{free_port()}"}
    stored = {f"store.{name}": value for name, value in settings.items()}
    return Job(store, stored | {"harness.endOffset": f"{end}"})


def _unavailable(version: str) -> None:
    reason = harness.available(version)
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize(
    ("name", "damages"), [("v55-dledger", _DAMAGE), ("v55-dledger-crash", (_nothing, _torn, _no_queues))]
)
def test_5_5_starts_on_what_recover_leaves(
    tmp_path: Path, name: str, damages: tuple[Callable[[Path], None], ...]
) -> None:
    _unavailable(NEWEST)
    stored = log_golden(name, tmp_path / "golden")
    mended, expected = [], []
    for damage in damages:
        mended.append(stored.copied_to(tmp_path / damage.__name__))
        damage(mended[-1])
        with StoreFiles(mended[-1], _CONFIG) as files:
            recover(files, ChangeOptions(below_confirm=True), cut=damage in (_half_head, _wrong_number, _wrong_sizes))
        expected.append({message.physical_offset for message in stored_messages(mended[-1], _CONFIG)})
    views = harness.open_many(NEWEST, [_job(store) for store in mended], threads=2)
    for damage, view, messages in zip(damages, views, expected, strict=True):
        complaints = [one for one in view.complaints() if one.removeprefix("changed: ") not in _OWN]
        assert (damage.__name__, complaints) == (damage.__name__, [])
        # brokers serve a message with a wrong CRC
        damaged_one = {entries_of(stored.store)[100].pos + HEAD} if damage is _damaged_message else set()
        assert {message.physical_offset for message in view.messages} == messages | damaged_one


def _both(one: Callable[[Path], None], other: Callable[[Path], None], store: Path) -> None:
    one(store)
    other(store)


def _broken(store: Path, seed: int) -> None:
    """A member as kills and bad disks leave it."""
    chance = random.Random(seed)
    (store / "abort").unlink(missing_ok=True)
    if chance.random() < 0.5:
        _crashed(store)
    for _ in range(chance.randrange(3)):
        path = chance.choice([one for one in sorted(store.rglob("0*0")) if one.is_file()])
        put(path, chance.randrange(min(path.stat().st_size, 100_000)), chance.choice([b"\0", b"\xff", bytes(300)]))
    for name in ("consumequeue", "index", "checkpoint", "dledger-n0/checkpoint"):
        if chance.random() < 0.25:
            shutil.rmtree(store / name) if (store / name).is_dir() else (store / name).unlink()
    known = store / "dledger-n0" / "checkpoint"
    if known.exists() and chance.random() < 0.5:
        known.write_text(f"endIndex=319\ncommittedIndex={chance.randrange(400)}\n")


def _wrong(found: list[tuple[str, Start, Prediction]], views: list[BrokerView]) -> dict[str, list[str]]:
    return {
        label: told
        for (label, start, prediction), view in zip(found, views, strict=True)
        if (told := differences(start, prediction, view))
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_starts_cut_and_dispatch_what_is_predicted(tmp_path: Path, version: str) -> None:
    """The end of the log, the queues and their units, the files that go."""
    _unavailable(version)
    found: list[tuple[str, Start, Prediction]] = []
    jobs = []
    of_golden: dict[str, list[Callable[[Path], None]]] = {
        "v55-dledger": [*_DAMAGE, *(partial(_both, one, _crashed) for one in _DAMAGE)],
        "v55-dledger-crash": [_nothing, _torn, _no_queues],
    }
    for name, damages in of_golden.items():
        stored = log_golden(name, tmp_path / name)
        damages += [partial(_broken, seed=seed) for seed in range(5)]
        for number, damage in enumerate(damages):
            store = stored.copied_to(tmp_path / f"{name}-{number}")
            damage(store)
            with StoreFiles(store, _CONFIG) as files:
                start = DledgerStart(files, RELEASES[version], None, Events())
                found.append((f"{name} {number}", start, start.run()))
            jobs.append(_job(store, end=found[-1][2].end_offset or 0))
    assert _wrong(found, harness.open_many(version, jobs, threads=4)) == {}


_PLAIN = {
    "4": ("v4-clean", "v4-crash", "v4-cq-lost", "v4-crc-flip-last-abort", "v4-torn-garbage", "v4-crc-flip-old"),
    "5": ("clean", "crash", "cq-lost-abort", "cq-truncated", "crc-flip-old-abort", "crc-flip-last", "prealloc-last"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_start_of_a_member_is_predicted(tmp_path: Path, version: str) -> None:
    """DLedger begins its log after the last file of the commitlog, which 4.9.8 recovers as after a clean stop."""
    _unavailable(version)
    found: list[tuple[str, Start, Prediction]] = []
    jobs = []
    for name in _PLAIN[version[0]]:
        store = golden(name, tmp_path / name)
        if name == "v4-crc-flip-old":
            # after a crash this would cut the log there
            _crashed(store)
            (store / "checkpoint").unlink()
        conf = broker_conf(name, tmp_path / name)
        with conf.open("a") as file:
            file.write("enableDLegerCommitLog=true\n")
        start, prediction = simulated(store, read_broker_conf(conf), version)
        [told] = [text for text in prediction.warnings if "this is the first start" in text]
        prediction.end_offset = int(told.rpartition(" ")[2])
        found.append((name, start, prediction))
        of_store = {key: text for key, text in properties(name).items() if not key.startswith("load.")}
        jobs.append(Job(store, {**_job(store, prediction.end_offset).properties, **of_store}))
    assert _wrong(found, harness.open_many(version, jobs, threads=4)) == {}


@pytest.mark.parametrize(("crashed", "committed"), [(False, None), (True, None), (False, 199)])
def test_queues_in_rocksdb_get_what_is_predicted(tmp_path: Path, crashed: bool, committed: int | None) -> None:
    """Empty ones: all after a crash, after a clean stop entries after the committed one."""
    store = log_golden("v55-dledger", tmp_path / "golden").store
    _no_queues(store)
    if crashed:
        _crashed(store)
    if committed is not None:
        (store / "dledger-n0" / "checkpoint").write_text(f"endIndex={committed}\ncommittedIndex={committed}\n")
    settings = _SETTINGS | {"storeType": "defaultRocksDB", "fileReservedTime": "100000"}
    with StoreFiles(store, config_from_properties(settings)) as files:
        found = predict(files, NEWEST)
    peers = {"dLegerPeers": f"n0-127.0.0.1:{free_port()}"}
    with real_broker(NEWEST, tmp_path / "broker", store, settings | peers, shut_down=True):
        time.sleep(3)  # it takes messages before it has dispatched what it holds
    queues = RocksdbQueues(store / "consumequeue", None)
    ends = {(one.topic, one.queue_id): one.end for one in queues.ends() if one.end}
    assert {(row["topic"], row["queue_id"]): row["max_after"] for row in found.queues_changed} == ends
    messages = 0 if crashed else 320 if committed is None else committed + 1
    assert found.messages_unqueued == messages
