"""Why a broker refuses messages: each visible cause in one sentence, and what files cannot show."""

from __future__ import annotations

import os

import pytest

from rmqctl.store.clean.cleaner import Writes, judge_writes
from rmqctl.store.clean.options import DiskUsage
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.files import lock
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore

_FREE = DiskUsage((10,), 10)


def _judged(golden_store: GoldenStore, config: StoreConfig, usage: DiskUsage = _FREE) -> Writes:
    with StoreFiles(golden_store("clean"), config) as files:
        return judge_writes(files, usage)


@pytest.mark.parametrize(
    ("usage", "accepted"),
    [
        (DiskUsage((90,), 90), True),
        (DiskUsage((91,), 10), False),
        (DiskUsage((10,), 91), False),
        (DiskUsage((91, 20), 10), True),  # the emptiest of several commitlog disks counts
        (DiskUsage((None,), None), None),
    ],
)
def test_full_disks(golden_store: GoldenStore, usage: DiskUsage, accepted: bool | None) -> None:
    found = _judged(golden_store, StoreConfig(), usage)
    assert found.accepted is accepted
    assert ("CODE 14" in found.sentence) is (accepted is False)


def test_ratios_of_the_configuration(golden_store: GoldenStore) -> None:
    """RocketMQ lowers a ratio beyond its limits, so a disk of 91 % stops writes in spite of 99."""
    wide = _judged(golden_store, StoreConfig(disk_space_warning_level_ratio=99), DiskUsage((91,), 10))
    assert wide.accepted is False
    narrow = _judged(golden_store, StoreConfig(disk_space_warning_level_ratio=50), DiskUsage((51,), 10))
    assert narrow.accepted is False
    assert "51 % full, above diskSpaceWarningLevelRatio 50 %" in narrow.sentence
    clamped = _judged(golden_store, StoreConfig(disk_space_warning_level_ratio=99))
    assert "diskSpaceWarningLevelRatio=99 counts as 90" in clamped.warnings[0]


def test_forced_cleaning_is_a_warning(golden_store: GoldenStore) -> None:
    found = _judged(golden_store, StoreConfig(), DiskUsage((86,), 10))
    assert found.accepted is True
    assert "diskSpaceCleanForciblyRatio 85 %" in found.warnings[0]
    assert _judged(golden_store, StoreConfig(), DiskUsage((85,), 10)).warnings[0].endswith("at any hour")


def test_role_and_permission(golden_store: GoldenStore) -> None:
    slave = config_from_properties({"brokerRole": "SLAVE"}, "broker.conf")
    assert [cause.name for cause in _judged(golden_store, slave).causes] == ["role"]
    assert _judged(golden_store, slave._replace(duplication_enable=True)).causes == []
    readable = config_from_properties({"brokerPermission": "4"}, "broker.conf")
    assert [cause.name for cause in _judged(golden_store, readable).causes] == ["permission"]
    both = _judged(golden_store, readable._replace(broker_role="SLAVE"), DiskUsage((95,), 10))
    assert [cause.name for cause in both.causes] == ["disk", "role", "permission"]


def test_a_read_only_disk(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def read_only(path: str) -> os.statvfs_result:
        values = list(real(path))
        values[8] |= os.ST_RDONLY
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", read_only)
    found = _judged(golden_store, StoreConfig())
    assert [cause.name for cause in found.causes] == ["no file"]
    assert "read-only" in found.sentence


def test_flags_in_memory_are_not_claimed(golden_store: GoldenStore) -> None:
    """Nothing is known of the flags of a running broker, and that is said."""
    store = golden_store("clean")
    with StoreFiles(store) as files:
        assert judge_writes(files, _FREE).not_seen == []
        taken = lock.take_lock(files.layout)
        try:
            with StoreFiles(store) as other:
                unseen = " ".join(judge_writes(other, _FREE).not_seen)
        finally:
            taken.release()
    assert "running flags" in unseen
    assert "page cache" in unseen
