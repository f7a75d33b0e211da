"""Whether a store is fit to be appended to: the end of its log, and queues and index that agree with it.

Only looks. Opening for writing never repairs: what does not fit is a RefusedError that names `recover`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.hosts import Host
from rmqctl.formats.message import StoredMessage
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, Progress, walk
from rmqctl.store.files.presence import is_directory
from rmqctl.store.files.trees import on_disk_bytes
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_survey import LogSurvey, new_survey, start_after_clean_stop
from rmqctl.store.survey.refused import as_brokers_read
from rmqctl.store.write.opening.queue_check import QueueEndCheck, refusal, refuse_problems

if TYPE_CHECKING:
    from rmqctl.store.survey.log_runs import Run
    from rmqctl.store.write.opening.run_check import RunCheck

# as much as is read message by message in the time that compiled code takes to load
_FEW_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class LogEnd:
    """Where appending goes on. Offsets are physical, -1 where there is no message; times in ms."""

    end_offset: int = 0
    last_message_offset: int = -1
    last_timestamp: int = 0
    last_store_host: Host | None = None
    last_keyed_offset: int = -1
    last_indexed_offset: int = -1


def check_for_writing(files: StoreFiles, *, is_full: bool = False, progress: Progress | None = None) -> LogEnd:
    """The end of the log; RefusedError unless everything fits together.

    The last three files of the log are walked with CRC, with `is_full` all of them, and held against queues and index.
    """
    log, root = files.log, files.root
    refuse_problems(log.problems, root)
    if not any(is_directory(directory) for directory in log.directories) and files.queues.all():
        raise RefusedError(
            "the store has queues, but no commitlog",
            file=log.directories[0],
            hint=f"name its directories by storePathCommitLog (-c broker.conf), or run "
            f"`rmqctl recover -s {shlex.quote(str(root))}`",
        )
    survey = new_survey(log, max(log.min_offset, 0) if is_full else start_after_clean_stop(log))
    end = LogEnd()
    queues = QueueEndCheck(files, survey.start_offset)
    for record in _records(files, end, queues, survey, progress):
        if isinstance(record, Damage):
            raise refusal(f"the log is damaged: {record.detail}", root, record.file, record.physical_offset)
        if survey.stop is not None:
            text = "a file of zeros lies behind the end of the log"
            if not isinstance(record, Empty):
                text = "a record lies behind zeros in the log"
            raise refusal(text, root, offset=record.physical_offset)
        if isinstance(record, Blank | Empty):
            survey.pass_other(record)
        else:
            record.check()
    end.end_offset = survey.end_offset
    queues.check_ends(end.end_offset)
    _check_index(files, end)
    return end


class _Checked(NamedTuple):
    """Messages of the walk; `check` holds them against the queues and notes where they end."""

    physical_offset: int
    check: Callable[[], None]


def _records(
    files: StoreFiles, end: LogEnd, queues: QueueEndCheck, survey: LogSurvey, progress: Progress | None
) -> Iterator[_Checked | Blank | Empty | Damage]:
    """The walk over what the survey is of: message by message, or where there are many in runs."""
    begin = survey.start_offset
    if _bytes_on_disk(files, begin) > _FEW_BYTES:
        # numpy and compiled code take longer to load than a short log to read
        from rmqctl.store.survey.run_survey import walk_runs
        from rmqctl.store.write.opening.run_check import RunCheck

        run_check = RunCheck(files, queues)
        for found in walk_runs(files.log, run_check.digest, begin, crc_from=begin, progress=progress):
            if isinstance(found, Blank | Empty | Damage):
                yield found
            else:
                yield _Checked(found.physical_offset, partial(_check_run, end, run_check, survey, found))
        return
    for record in as_brokers_read(walk(files.log, begin, crc_from=begin, progress=progress), files.log):
        if isinstance(record, StoredMessage):
            yield _Checked(record.physical_offset, partial(_check_message, end, queues, survey, record))
        else:
            yield record


def _bytes_on_disk(files: StoreFiles, begin: int) -> int:
    checked = [file for file in files.log.files if file.end_offset > begin]
    return sum(min(file.size, on_disk_bytes(file.path.stat())) for file in checked)


def _check_message(end: LogEnd, queues: QueueEndCheck, survey: LogSurvey, message: StoredMessage) -> None:
    survey.pass_message(message)
    _note(end, message)
    if index_keys(message):
        end.last_keyed_offset = message.physical_offset
    if index_keys(message, with_tags=True):
        end.last_indexed_offset = message.physical_offset
    queues.check(message)


def _check_run(end: LogEnd, run_check: RunCheck, survey: LogSurvey, run: Run) -> None:
    survey.pass_messages(run.physical_offset, run.end, run.messages, run.last_message_offset, run.last_store_timestamp)
    _note(end, run_check.last_message(run))
    keyed = run.key_offsets[~run.key_is_tag]
    if len(keyed):
        end.last_keyed_offset = int(keyed[-1])
    if len(run.key_offsets):
        end.last_indexed_offset = int(run.key_offsets[-1])
    run_check.check(run)


def _note(end: LogEnd, message: StoredMessage) -> None:
    end.last_message_offset = message.physical_offset
    end.last_timestamp = message.store_timestamp
    end.last_store_host = message.store_host


def _check_index(files: StoreFiles, end: LogEnd) -> None:
    if not files.config.writes_index_files:
        return
    index = files.index
    used = [file for file in index.files if file.header.index_count > 1]
    indexed_to = used[-1].header.end_physical_offset if used else -1
    is_whole = True
    if used:
        last = used[-1].entry(used[-1].header.index_count - 1)
        # the newest entry is the head of its chain
        is_whole = used[-1].slot(last.key_hash) == last.number
    if (
        indexed_to >= end.end_offset
        or not is_whole
        # tags may be indexed or not: that depends on the version of the broker
        or (end.last_keyed_offset >= 0 and indexed_to not in (end.last_keyed_offset, end.last_indexed_offset))
    ):
        if files.has_keys_in_rocksdb_alone:
            raise RefusedError(
                "there is no index file; the keys may be in rocksdbstore/, which rmqctl does not write",
                file=index.directory,
                hint="set messageIndexEnable=false in -c broker.conf to append without keys; where index files were "
                "lost, `rmqctl rebuild --index` makes them",
            )
        raise RefusedError(
            "the index does not hold the keys of the last messages, or points beyond them",
            file=index.directory,
            hint=f"run `rmqctl recover -s {shlex.quote(str(files.root))}` first, or set messageIndexEnable=false to "
            "append without keys",
        )
