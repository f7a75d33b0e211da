"""The engine for one store on one machine. Public names are listed here.

from rmqctl.store import Message, MessageStore
with MessageStore.open("/data/store") as store: ...

docs/library.md shows each method. Whoever imports one name, or one module of the store, pays for nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import rmqctl.store.compiled  # noqa: F401 - how store/native is found, before anything of it is imported

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
    from rmqctl.formats.hosts import Host
    from rmqctl.formats.message import Message, StoredMessage
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

__all__ = [
    "MessageStore",
    "StoreConfig",
    "read_broker_conf",
    # messages and what is asked of them
    "Message",
    "StoredMessage",
    "Host",
    "Criteria",
    "TopicFilter",
    "Target",
    "ChangeOptions",
    "Events",
    "CleanOptions",
    "EntryChange",
    "ResetTo",
    "DeadChoice",
    # answers
    "PutResult",
    "PutStatus",
    "GetResult",
    "GetStatus",
    "QueryResult",
    "Prediction",
    "Change",
    "Loss",
    "RecoverReport",
    "RepairReport",
    "RebuildReport",
    "CleanReport",
    "Forecast",
    "Unread",
    "OffsetsReport",
    "Redrive",
    "ExportReport",
    "SnapshotReport",
    "VerifyReport",
    "SalvageReport",
    # errors
    "RmqctlError",
    "UsageError",
    "NotAStoreError",
    "UnreadableError",
    "UnreadPartError",
    "RemovedError",
    "CorruptError",
    "HiddenByDamageError",
    "UncertainError",
    "ExhaustedError",
    "NotFoundError",
    "NotIndexedError",
    "UnsupportedError",
    "StoreInUseError",
    "RefusedError",
    "WriteFailedError",
    "DiskFullError",
]

_ERRORS = "rmqctl.formats.errors"
# where a name is that is none of these errors
_HOMES = {
    "MessageStore": "rmqctl.store.message_store",
    "StoreConfig": "rmqctl.store.config.config",
    "read_broker_conf": "rmqctl.store.config.config",
    "Message": "rmqctl.formats.message",
    "StoredMessage": "rmqctl.formats.message",
    "Host": "rmqctl.formats.hosts",
    "Criteria": "rmqctl.store.read.filter",
    "TopicFilter": "rmqctl.store.read.filter",
    "Target": "rmqctl.store.export.export",
    "CleanOptions": "rmqctl.store.clean.options",
    "EntryChange": "rmqctl.store.repair.entries",
    "ResetTo": "rmqctl.store.offsets.change",
    "DeadChoice": "rmqctl.store.answers.dead_letters",
    "Redrive": "rmqctl.store.answers.dead_letters",
    "OffsetsReport": "rmqctl.store.offsets.change",
    "Forecast": "rmqctl.store.clean.forecast",
    "Unread": "rmqctl.store.clean.cleaner",
    "PutResult": "rmqctl.store.write.put",
    "PutStatus": "rmqctl.store.status",
    "GetResult": "rmqctl.store.read.get",
    "GetStatus": "rmqctl.store.status",
    "QueryResult": "rmqctl.store.read.query",
    "NotIndexedError": "rmqctl.store.read.query",
    "Prediction": "rmqctl.store.predict",
    "Change": "rmqctl.store.journal.log",
    "ChangeOptions": "rmqctl.store.options",
    "Events": "rmqctl.store.options",
    "Loss": "rmqctl.store.options",
    "RecoverReport": "rmqctl.store.recover.report",
    "RepairReport": "rmqctl.store.repair.repair",
    "RebuildReport": "rmqctl.store.recover.rebuild",
    "CleanReport": "rmqctl.store.clean.cleaner",
    "ExportReport": "rmqctl.store.export.export",
    "SnapshotReport": "rmqctl.store.snapshot.snapshot",
    "VerifyReport": "rmqctl.store.snapshot.snapshot",
    "SalvageReport": "rmqctl.store.salvage.write",
}


if not TYPE_CHECKING:  # so that type checkers see a name that is misspelt

    def __getattr__(name: str) -> object:
        # on first use only: whoever imports one module of the store must not pay for all of them
        if name not in __all__:
            raise AttributeError(f"module 'rmqctl.store' has no attribute {name!r}")
        found: object = getattr(import_module(_HOMES.get(name, _ERRORS)), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
