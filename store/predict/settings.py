"""Settings of a broker that alter its start: some are followed by the prediction, with the others it is refused."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.predict.rules import Rules
from rmqctl.store.queues.queue_table import has_rocksdb_queues


class _Setting(NamedTuple):
    """`is_older`: 4.9.8 knows it as well. `why`: what it alters (docs/recovery.md)."""

    name: str
    in_broker_conf: str
    is_older: bool
    why: str


_NOT_FOLLOWED = (
    _Setting("duplication_enable", "duplicationEnable", True, "recovery ends at the confirmed offset"),
    _Setting("enable_dleger_commit_log", "enableDLegerCommitLog", True, "DLedger recovers a log of its own"),
    _Setting("enable_controller_mode", "enableControllerMode", False, "recovery ends at the confirmed offset"),
    _Setting("force_verify_prop_crc", "forceVerifyPropCRC", False, "the log ends at any message without __CRC32#"),
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
    for setting in _NOT_FOLLOWED:
        if getattr(config, setting.name) and (setting.is_older or rules.knows_batches):
            raise UnsupportedError(
                f"with {setting.in_broker_conf}=true a start is not predicted: {setting.why}",
                hint="`rmqctl check` says what is wrong with the store",
            )
