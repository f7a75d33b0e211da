# ruff: noqa: F401 - the imports are for type checkers
"""The functions behind the methods of MessageStore, each imported when it is used: opening a store loads none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.store.answers.dead_letters import DeadChoice, Into, dead_letters, redrives
    from rmqctl.store.answers.delays import delays, due, undelivered
    from rmqctl.store.answers.groups import group_queues
    from rmqctl.store.answers.transactions import unresolved_halves
    from rmqctl.store.answers.where import WhereQuestion, where
    from rmqctl.store.check.check import check
    from rmqctl.store.clean.cleaner import clean, judge_writes, unread_before
    from rmqctl.store.clean.forecast import forecast_clean
    from rmqctl.store.clean.options import options_from_config
    from rmqctl.store.dump.dump_file import dump_file
    from rmqctl.store.export.export import Target, export_selected, format_of
    from rmqctl.store.files.outputs import Sharing
    from rmqctl.store.info.counts import size_history
    from rmqctl.store.info.info import (
        disk_usage,
        file_rows,
        has_queue_files,
        info,
        queue_rows,
        topic_rows,
        topic_rows_from_log,
    )
    from rmqctl.store.journal.log import changes, find_change, last_standing
    from rmqctl.store.journal.undo import forget, give_up, resume, undo
    from rmqctl.store.offsets.change import (
        change_offsets,
        copy_offsets,
        delete_offsets,
        delete_orphans,
        merge_offsets,
        reset_offsets,
        set_offset,
    )
    from rmqctl.store.offsets.deliveries import end_pops, set_delay_offset
    from rmqctl.store.offsets.show import kept_offsets, lint_offsets
    from rmqctl.store.pop.state import PopState
    from rmqctl.store.predict import predict
    from rmqctl.store.predict.compatibility import differences, probable_version
    from rmqctl.store.read.filter import Criteria
    from rmqctl.store.read.follow import follow
    from rmqctl.store.read.query import lookup_offset_id
    from rmqctl.store.read.select import Selection
    from rmqctl.store.recover.bridge import recover_bridging
    from rmqctl.store.recover.compacted import rebuild_compacted
    from rmqctl.store.recover.rebuild import rebuild
    from rmqctl.store.recover.recover import recover, truncate
    from rmqctl.store.recover.timer import rebuild_timer
    from rmqctl.store.repair.entries import change_entry, purge_topics
    from rmqctl.store.repair.repair import repair
    from rmqctl.store.salvage.salvage import salvage
    from rmqctl.store.scan.scan import Scan
    from rmqctl.store.scan.schema import require_pyarrow
    from rmqctl.store.snapshot.preflight import preflight
    from rmqctl.store.snapshot.snapshot import take_snapshot, verify_snapshot
    from rmqctl.store.status import version
    from rmqctl.store.write.writer import open_writer

_NAMES = {
    "rmqctl.store.answers.dead_letters": "DeadChoice Into dead_letters redrives",
    "rmqctl.store.answers.delays": "delays due undelivered",
    "rmqctl.store.answers.groups": "group_queues",
    "rmqctl.store.answers.transactions": "unresolved_halves",
    "rmqctl.store.answers.where": "WhereQuestion where",
    "rmqctl.store.check.check": "check",
    "rmqctl.store.clean.cleaner": "clean judge_writes unread_before",
    "rmqctl.store.clean.forecast": "forecast_clean",
    "rmqctl.store.clean.options": "options_from_config",
    "rmqctl.store.dump.dump_file": "dump_file",
    "rmqctl.store.export.export": "Target export_selected format_of",
    "rmqctl.store.files.outputs": "Sharing",
    "rmqctl.store.info.info": "disk_usage file_rows has_queue_files info queue_rows topic_rows topic_rows_from_log",
    "rmqctl.store.info.counts": "size_history",
    "rmqctl.store.journal.log": "changes find_change last_standing",
    "rmqctl.store.journal.undo": "forget give_up resume undo",
    "rmqctl.store.offsets.change": "change_offsets copy_offsets delete_offsets delete_orphans "
    "merge_offsets reset_offsets set_offset",
    "rmqctl.store.offsets.deliveries": "end_pops set_delay_offset",
    "rmqctl.store.offsets.show": "kept_offsets lint_offsets",
    "rmqctl.store.pop.state": "PopState",
    "rmqctl.store.predict": "predict",
    "rmqctl.store.predict.compatibility": "differences probable_version",
    "rmqctl.store.read.filter": "Criteria",
    "rmqctl.store.read.follow": "follow",
    "rmqctl.store.read.query": "lookup_offset_id",
    "rmqctl.store.read.select": "Selection",
    "rmqctl.store.recover.bridge": "recover_bridging",
    "rmqctl.store.recover.compacted": "rebuild_compacted",
    "rmqctl.store.recover.rebuild": "rebuild",
    "rmqctl.store.recover.recover": "recover truncate",
    "rmqctl.store.repair.entries": "change_entry purge_topics",
    "rmqctl.store.repair.repair": "repair",
    "rmqctl.store.salvage.salvage": "salvage",
    "rmqctl.store.scan.scan": "Scan",
    "rmqctl.store.scan.schema": "require_pyarrow",
    "rmqctl.store.snapshot.preflight": "preflight",
    "rmqctl.store.snapshot.snapshot": "take_snapshot verify_snapshot",
    "rmqctl.store.status": "version",
    "rmqctl.store.recover.timer": "rebuild_timer",
    "rmqctl.store.write.writer": "open_writer",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # so that type checkers see a name that is misspelt

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
