"""What differs between the brokers whose start is predicted (docs/recovery.md), and which settings of a broker alter
its start in ways that are not followed: with these the prediction is refused."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.log.unread_logs import dledger_log
from rmqctl.store.queues.queue_table import has_rocksdb_queues


class Rules(NamedTuple):
    """How one version starts.

    `tidies_listing`: an empty last file is deleted and directories among the files are passed over; else both have a
    wrong length. `reads_v2`: frames of topics over 127 characters. `knows_batches`: queues of 46-byte units.
    `index_counts`: a failure to load the index is one of the store. `starts_by_queues`: after a clean stop the file
    that holds the queues' end is the first one read, else the third from the end. `dispatches_clean`: what is read
    after a clean stop is dispatched where it lies behind the queues' end. `catches_up`: once started, the store
    dispatches from the queues' end on, bodies unchecked; else from its own end, which is nothing.
    `compares_room`: a frame that is larger than what is left of its file ends the log, whatever its magic says.
    `trusts_filler`: the minimum of a queue is searched from the one it had on. `writes_abort`: its process id goes into
    the abort file, which 4.9.8 only makes.
    """

    version: str
    tidies_listing: bool
    reads_v2: bool
    knows_batches: bool
    index_counts: bool
    starts_by_queues: bool
    dispatches_clean: bool
    catches_up: bool
    trusts_filler: bool
    compares_room: bool
    writes_abort: bool


BROKERS: dict[str, Rules] = {
    rules.version: rules
    for rules in (
        Rules("4.9.8", False, False, False, False, False, False, True, False, False, False),
        Rules("5.3.3", True, True, True, True, True, True, False, True, True, True),
    )
}
"""The brokers whose start can be predicted."""

CLEAN_STOP_FILES = 3
"""Files that are read after a clean stop where the queues do not say (CommitLog#recoverNormally)."""


CONFIRMED_OFFSET = "recovery ends at the confirmed offset"
"""Why some starts are not predicted."""


class _Setting(NamedTuple):
    """A setting with which starts of `versions` are not predicted. `why`: what it alters (docs/recovery.md)."""

    name: str
    in_broker_conf: str
    versions: tuple[str, ...]
    why: str


_NOT_FOLLOWED = (
    _Setting("duplication_enable", "duplicationEnable", ("4.9.8",), CONFIRMED_OFFSET),
    _Setting("enable_dleger_commit_log", "enableDLegerCommitLog", tuple(BROKERS), "DLedger recovers a log of its own"),
    _Setting("enable_controller_mode", "enableControllerMode", ("5.3.3",), CONFIRMED_OFFSET),
    _Setting("force_verify_prop_crc", "forceVerifyPropCRC", ("5.3.3",), "the log ends at any message without __CRC32#"),
)


def refuse_what_is_not_followed(layout: StoreLayout, config: StoreConfig, rules: Rules) -> None:
    """UnsupportedError where the start depends on what is not known here: nothing is guessed."""
    if has_rocksdb_queues(layout) or (config.store_type == "defaultRocksDB" and rules.knows_batches):
        raise UnsupportedError(
            "the consume queues are in a RocksDB, which decides where recovery begins and what it dispatches: "
            "such a start is not predicted",
            file=layout.consumequeue,
            hint="`rmqctl check` looks at the commitlog and the index",
        )
    log = dledger_log(layout)
    if log is not None:
        raise UnsupportedError(
            f"{log.said}: DLedger recovers it by rules of its own, and such a start is not predicted",
            file=layout.root,
            hint=log.hint,
        )
    for setting in _NOT_FOLLOWED:
        if getattr(config, setting.name) and rules.version in setting.versions:
            raise not_predicted(setting.in_broker_conf, setting.why)


def not_predicted(in_broker_conf: str, why: str) -> UnsupportedError:
    """Return the error for a setting with which the start cannot be predicted."""
    return UnsupportedError(
        f"with {in_broker_conf}=true a start is not predicted: {why}",
        hint="`rmqctl check` says what is wrong with the store",
    )
