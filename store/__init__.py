"""The engine for one store on one machine. Public names are listed here.

from rmqctl.store import Message, MessageStore
with MessageStore.open("/data/store") as store: ...

docs/library.md shows each method. Importing one name, or one module of the store, loads only that.
"""

# ruff: noqa: F401 - its imports are what it offers

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import rmqctl.store.compiled  # how store/native is found, before anything of it is imported

if TYPE_CHECKING:
    from rmqctl.formats.errors import (
        CorruptError,
        DiskFullError,
        ExhaustedError,
        HiddenByDamageError,
        NotAStoreError,
        NotFoundError,
        RefusedError,
        RemovedError,
        RmqctlError,
        StoreInUseError,
        UncertainError,
        UnreadableError,
        UnreadPartError,
        UnsupportedError,
        UsageError,
        WriteFailedError,
    )
    from rmqctl.formats.message import Host, Message, StoredMessage
    from rmqctl.store.answers.dead_letters import DeadChoice, Redrive
    from rmqctl.store.clean.cleaner import CleanReport, Unread
    from rmqctl.store.clean.forecast import Forecast
    from rmqctl.store.clean.options import CleanOptions
    from rmqctl.store.config.config import StoreConfig, read_broker_conf
    from rmqctl.store.export.export import ExportReport, Target
    from rmqctl.store.journal.log import Change
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.offsets.change import OffsetsReport, ResetTo
    from rmqctl.store.options import ChangeOptions, Events, Loss
    from rmqctl.store.predict import Prediction
    from rmqctl.store.read.filter import Criteria, TopicFilter
    from rmqctl.store.read.get import GetResult
    from rmqctl.store.read.query import NotIndexedError, QueryResult
    from rmqctl.store.recover.rebuild import RebuildReport
    from rmqctl.store.recover.report import RecoverReport
    from rmqctl.store.repair.entries import EntryChange
    from rmqctl.store.repair.repair import RepairReport
    from rmqctl.store.salvage.write import SalvageReport
    from rmqctl.store.snapshot.snapshot import SnapshotReport, VerifyReport
    from rmqctl.store.status import GetStatus, PutStatus
    from rmqctl.store.write.put import PutResult

# what is public, by its module
_NAMES = {
    "rmqctl.store.message_store": "MessageStore",
    "rmqctl.store.config.config": "StoreConfig read_broker_conf",
    "rmqctl.formats.message": "Host Message StoredMessage",
    "rmqctl.store.read.filter": "Criteria TopicFilter",
    "rmqctl.store.export.export": "Target ExportReport",
    "rmqctl.store.options": "ChangeOptions Events Loss",
    "rmqctl.store.clean.options": "CleanOptions",
    "rmqctl.store.repair.entries": "EntryChange",
    "rmqctl.store.offsets.change": "ResetTo OffsetsReport",
    "rmqctl.store.answers.dead_letters": "DeadChoice Redrive",
    "rmqctl.store.write.put": "PutResult",
    "rmqctl.store.status": "PutStatus GetStatus",
    "rmqctl.store.read.get": "GetResult",
    "rmqctl.store.read.query": "QueryResult NotIndexedError",
    "rmqctl.store.predict": "Prediction",
    "rmqctl.store.journal.log": "Change",
    "rmqctl.store.recover.report": "RecoverReport",
    "rmqctl.store.repair.repair": "RepairReport",
    "rmqctl.store.recover.rebuild": "RebuildReport",
    "rmqctl.store.clean.cleaner": "CleanReport Unread",
    "rmqctl.store.clean.forecast": "Forecast",
    "rmqctl.store.snapshot.snapshot": "SnapshotReport VerifyReport",
    "rmqctl.store.salvage.write": "SalvageReport",
    "rmqctl.formats.errors": (
        "RmqctlError UsageError NotAStoreError UnreadableError UnreadPartError RemovedError CorruptError "
        "HiddenByDamageError UncertainError ExhaustedError NotFoundError UnsupportedError StoreInUseError "
        "RefusedError WriteFailedError DiskFullError"
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]  # noqa: PLE0604 - these are names

if not TYPE_CHECKING:  # so that type checkers see a name that is misspelt

    def __getattr__(name: str) -> object:
        # on first use only: whoever imports one module of the store must not pay for all of them
        if name not in _HOMES:
            raise AttributeError(f"module 'rmqctl.store' has no attribute {name!r}")
        found: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
