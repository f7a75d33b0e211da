"""RocketMQ 5.5.0 in DLedger mode cuts what is predicted, and starts on what `recover` leaves: nothing is lost then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store.config.config import config_from_properties
from rmqctl.store.options import ChangeOptions
from rmqctl.store.predict.predicting import predict
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import log_golden
from tests.interop import harness
from tests.interop.harness import NEWEST, Job
from tests.interop.replicas import free_port
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


def _job(store: Path) -> Job:
    settings = _SETTINGS | {"dLegerPeers": f"n0-127.0.0.1:{free_port()}"}
    return Job(store, {f"store.{name}": value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("name", "damages"), [("v55-dledger", _DAMAGE), ("v55-dledger-crash", (_nothing, _torn, _no_queues))]
)
def test_5_5_starts_on_what_recover_leaves_and_cuts_what_is_predicted(
    tmp_path: Path, name: str, damages: tuple[Callable[[Path], None], ...]
) -> None:
    reason = harness.available(NEWEST)
    if reason is not None:
        pytest.skip(reason)
    golden = log_golden(name, tmp_path / "golden")
    damaged, mended, expected, ends = [], [], [], []
    for damage in damages:
        damaged.append(golden.copied_to(tmp_path / damage.__name__ / "damaged"))
        damage(damaged[-1])
        with StoreFiles(damaged[-1], _CONFIG) as files:
            ends.append(predict(files, NEWEST).end_offset)
        mended.append(golden.copied_to(tmp_path / damage.__name__ / "mended"))
        damage(mended[-1])
        with StoreFiles(mended[-1], _CONFIG) as files:
            recover(files, ChangeOptions(below_confirm=True), cut=damage in (_half_head, _wrong_number, _wrong_sizes))
        expected.append({message.physical_offset for message in stored_messages(mended[-1], _CONFIG)})
    views = harness.open_many(NEWEST, [_job(store) for store in mended], threads=2)
    for damage, view, messages in zip(damages, views, expected, strict=True):
        complaints = [one for one in view.complaints() if one.removeprefix("changed: ") not in _OWN]
        assert (damage.__name__, complaints) == (damage.__name__, [])
        # brokers serve a message with a wrong CRC
        damaged_one = {entries_of(golden.store)[100].pos + HEAD} if damage is _damaged_message else set()
        assert {message.physical_offset for message in view.messages} == messages | damaged_one
    views = harness.open_many(NEWEST, [_job(store) for store in damaged], threads=2)
    found = [(view.load_ok, view.max_offset) for view in views]
    assert found == [(True, end) for end in ends]
