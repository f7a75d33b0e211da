"""Which settings of a broker alter its start in ways that are not followed: with these the prediction is refused."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import RELEASES, VERSIONS, Release
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.store_files import dledger_log, has_dledger_files

CONFIRMED_OFFSET = "recovery ends at the confirmed offset"
"""Why some starts are not predicted."""


class _Setting(NamedTuple):
    """A setting with which starts of `versions` are not predicted. `why`: what it alters (docs/recovery.md)."""

    name: str
    in_broker_conf: str
    versions: tuple[str, ...]
    why: str


_OF_5 = tuple(name for name in VERSIONS if not RELEASES[name].is_of_4)
_NOT_FOLLOWED = (
    _Setting("duplication_enable", "duplicationEnable", ("4.9.8",), CONFIRMED_OFFSET),
    _Setting(
        "enable_dleger_commit_log", "enableDLegerCommitLog", VERSIONS, "the store has or had its DLedger log elsewhere"
    ),
    _Setting("enable_controller_mode", "enableControllerMode", _OF_5, CONFIRMED_OFFSET),
    _Setting("force_verify_prop_crc", "forceVerifyPropCRC", _OF_5, "the log ends at any message without __CRC32#"),
)


def has_queues_in_rocksdb(layout: StoreLayout, config: StoreConfig, release: Release) -> bool:
    """Return whether a broker has its queues in a RocksDB, as storeType says, else as the store shows; not 4.9.8."""
    if release.is_of_4:
        return False
    return config.store_type.startswith("defaultRocksDB") if config.store_type else has_rocksdb_queues(layout)


def refuse_what_is_not_followed(layout: StoreLayout, config: StoreConfig, release: Release) -> None:
    """UnsupportedError where the start depends on what is not known here: nothing is guessed."""
    is_elsewhere = config.store_path_dledger_commit_log or has_dledger_files(layout)
    is_known = dledger_log(layout) is not None or not is_elsewhere
    for setting in _NOT_FOLLOWED:
        is_followed = is_known and setting.name == "enable_dleger_commit_log"
        if getattr(config, setting.name) and release.name in setting.versions and not is_followed:
            raise not_predicted(setting.in_broker_conf, setting.why)


def not_predicted(in_broker_conf: str, why: str) -> UnsupportedError:
    """Return the error for a setting with which the start cannot be predicted."""
    return UnsupportedError(
        f"with {in_broker_conf}=true a start is not predicted: {why}",
        hint="`rmqctl check` says what is wrong with the store",
    )
