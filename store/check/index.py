"""The key index against the commitlog, both ways: the check that one walk over the log feeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError, counted
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import Level, LogSeen, TalliedRun
from rmqctl.store.check.queue_look import damaged_slots
from rmqctl.store.compare.index import (
    EntryReader,
    FileSurvey,
    IndexComparison,
    IndexSurvey,
    IndexTally,
    Misses,
    readable_files,
    survey_index,
)
from rmqctl.store.compare.lives import slots_of
from rmqctl.store.files.background import sleep
from rmqctl.store.index.index_file import files_needed, time_difference
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.log.implied import Run
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.store_files import StoreFiles

# What the cross check of the index found, as findings.

_SECOND = 1000
_LOOKS_AT_LIVE_FILES = 6
_PAUSE_S = 0.1
_LEAD = {True: "does not lead to its", False: "do not lead to their"}


class Dangling(NamedTuple):
    """Entries that point at no message. `kind`: damaged, nothing or past. `file`: number of the first one's file."""

    kind: str
    entries: int
    first_offset: int
    file: int


def file_findings(files: StoreFiles, survey: IndexSurvey, seen: LogSeen) -> Iterator[Finding]:
    """What is wrong with the files by themselves."""
    strangers = _strangers_now(files) if seen.is_live and survey.strangers else survey.strangers
    for path, problem in strangers:
        is_index = path.name.isdigit()
        code = "RMQ-IDX-013" if is_index else "RMQ-IDX-014"
        yield Finding(code, f"cannot be read as an index file: {problem}", file=path, found=problem)
    growth = _growth(survey, seen)
    yield from growth
    for number, file in enumerate(survey.files):
        yield from _entries_and_links(file)
        yield from _header(file, seen)
        if growth:
            continue  # one finding for all files that are not full
        if file.entries < file.geometry.entries - 1 and number < len(survey.files) - 1:
            yield Finding(
                "RMQ-IDX-016",
                f"the file has {file.entries} of {counted(file.geometry.entries - 1, 'entry', 'entries')}, and others "
                "follow it",
                file=file.path,
                expected=file.geometry.entries - 1,
                found=file.entries,
            )


def _growth(survey: IndexSurvey, seen: LogSeen) -> list[Finding]:
    """Return a finding where most index files are not needed for the entries."""
    needed = files_needed((file.geometry, file.entries) for file in survey.files)
    if needed is None:
        return []
    found, entries = len(survey.files), sum(file.entries for file in survey.files)
    sizes = sorted((file.geometry.file_size for file in survey.files), reverse=True)
    text = (
        f"{found} index files ({sum(sizes)} bytes) hold {counted(entries, 'entry', 'entries')}, for which "
        f"{counted(needed, 'file')} would do; the log has {counted(seen.log_end - seen.log_begin, 'byte')}"
    )
    folder = survey.files[0].path.parent
    return [Finding("RMQ-IDX-032", text, folder, expected=needed, found=found, bytes=sum(sizes[needed:]))]


def _strangers_now(files: StoreFiles) -> list[tuple[Path, str]]:
    """Listed again: a file that a writer was just making had no header yet, and where a broker is between two fields
    of a header (IndexFile#putKey), which on a busy machine takes a while, its entries do not fit. What stays counts."""
    strangers: list[tuple[Path, str]] = []
    for attempt in range(_LOOKS_AT_LIVE_FILES):
        if attempt:
            sleep(_PAUSE_S)
        service = IndexService(files.layout.index, files.config, files.descriptors)
        service.load()
        strangers = readable_files(service, files.descriptors)[1]
        if not strangers:
            break
    return strangers


def _entries_and_links(file: FileSurvey) -> Iterator[Finding]:
    if file.is_noise:
        yield Finding(
            "RMQ-IDX-013",
            "its entries are no entries: physical offsets rise and fall without order",
            file=file.path,
            messages=file.entries,
        )
    if file.entries < file.counted:
        yield Finding(
            "RMQ-IDX-015",
            f"the header counts {counted(file.counted, 'entry', 'entries')}, the file can hold or has {file.entries}",
            file=file.path,
            expected=file.counted,
            found=file.entries,
            messages=file.counted - file.entries,
        )
    if file.wrong_slots:
        yield Finding(
            "RMQ-IDX-010",
            f"{file.wrong_slots} of {counted(file.geometry.slots, 'slot')} {_LEAD[file.wrong_slots == 1]} newest entry "
            f"(first at byte {file.first_wrong} of the file)",
            file=file.path,
            found=file.wrong_slots,
            bytes=4 * file.wrong_slots,
        )
    if file.wrong_links:
        loops = f", {file.looping} of them round in a circle" if file.looping else ""
        yield Finding(
            "RMQ-IDX-012" if file.looping else "RMQ-IDX-011",
            f"{counted(file.wrong_links, 'entry leads', 'entries lead')} on to another one than "
            f"{'it' if file.wrong_links == 1 else 'they'} should{loops} "
            f"(first at byte {file.first_wrong} of the file)",
            file=file.path,
            found=file.wrong_links,
            bytes=4 * file.wrong_links,
        )


def _header(file: FileSurvey, seen: LogSeen) -> Iterator[Finding]:
    header, wrong = file.header, []
    if seen.is_live or not file.entries or file.entries < file.counted or file.is_noise:
        return
    first, last = file.stretches[0].first_offset, file.stretches[-1].last_offset
    if header.begin_physical_offset != first:
        wrong.append(("begin_physical_offset", first, header.begin_physical_offset))
    if header.end_physical_offset != last:
        wrong.append(("end_physical_offset", last, header.end_physical_offset))
    if seen.level is not Level.QUICK and header.hash_slot_count != file.used_slots:
        wrong.append(("hash_slot_count", file.used_slots, header.hash_slot_count))
    # not of a single entry: RocketMQ counts the time of a file's first entry from the file before it
    if file.entries > 1 and header.begin_timestamp > 0:
        moment = header.begin_timestamp + file.last_time_difference * _SECOND
        if file.last_time_difference != time_difference(header.begin_timestamp, header.end_timestamp):
            wrong.append(("end_timestamp", moment, header.end_timestamp))
    if wrong:
        names = ", ".join(name for name, _, _ in wrong)
        yield Finding(
            "RMQ-IDX-009",
            f"the header does not agree with the entries: {names}",
            file=file.path,
            expected=wrong[0][1],
            found=wrong[0][2],
        )


def tally_findings(
    files: StoreFiles, survey: IndexSurvey, tally: IndexTally, dangling: list[Dangling], seen: LogSeen
) -> Iterator[Finding]:
    """What differs between the keys of the log and the entries."""
    if not survey.files and not survey.strangers:
        # the first file of a live store may have come since the directory was listed
        if tally.keys and not (seen.is_live and any(files.layout.index.glob("*"))):
            yield _no_index(files, tally)
        return
    yield from _missing(files, survey, tally, seen)
    for kind, code, one, several, where in (
        ("nothing", "RMQ-IDX-005", "entry points", "entries point", "where no message is"),
        (
            "damaged",
            "RMQ-IDX-006",
            "entry points",
            "entries point",
            "into a damaged part of the log or at a missing file",
        ),
        ("past", "RMQ-IDX-007", "entry points", "entries point", "past the end of the log"),
    ):
        chosen = [one for one in dangling if one.kind == kind]
        if chosen:
            count = sum(one.entries for one in chosen)
            yield Finding(
                code,
                f"{counted(count, one, several)} {where}, the first at physical offset {chosen[0].first_offset}",
                file=survey.files[chosen[0].file].path,
                physical_offset=chosen[0].first_offset,
                expected=f"below {seen.log_end}" if kind == "past" else None,
                found=chosen[0].first_offset,
                messages=count,
                data_lost=True if kind == "damaged" else None if kind == "past" else False,
                fix="rmqctl recover" if kind == "damaged" and chosen[0].first_offset >= seen.log_end else None,
            )
    if tally.foreign.count:
        said = "entry leads to a message that does not have its key", "entries lead to a message without their key"
        yield _of_entries(survey, tally.foreign, "RMQ-IDX-005", said)
    if tally.repeated.count:
        said = "message was put into the index more than once", "messages were put into the index more than once"
        yield _of_keys(survey, files, tally.repeated, "RMQ-IDX-008", said)
    if tally.late.count:
        yield _of_entries(survey, tally.late, "RMQ-IDX-017", ("entry has a wrong time", "entries have a wrong time"))
    if tally.first_late.count:
        said = "file whose first entry has a time too late", "files whose first entry has a time too late"
        yield _of_entries(survey, tally.first_late, "RMQ-IDX-018", said)
    if tally.tags and tally.tagless.count:
        said = (
            "message has a tag that is not in the index, as those of other messages are",
            "messages have tags that are not in the index, as those of other messages are",
        )
        yield _of_keys(survey, files, tally.tagless, "RMQ-IDX-030", said)


def _no_index(files: StoreFiles, tally: IndexTally) -> Finding:
    if files.has_keys_in_rocksdb_alone:
        return Finding(
            "RMQ-IDX-031",
            f"no index file for {counted(tally.keys, 'key')} of the log: rocksdbstore/ has them, or is damaged",
            file=files.layout.message_storage,
        )
    checkpoint = files.readable_checkpoint()
    had_index = checkpoint is not None and checkpoint.index_msg_timestamp > 0
    return Finding(
        "RMQ-IDX-003" if had_index else "RMQ-IDX-004",
        f"there is no index file, but the commitlog has {counted(tally.keys, 'key')}"
        + (", and the checkpoint knows of a full index file" if had_index else ""),
        file=files.layout.index,
        expected=tally.keys,
        found=0,
        messages=tally.tail.messages,
    )


def _missing(files: StoreFiles, survey: IndexSurvey, tally: IndexTally, seen: LogSeen) -> Iterator[Finding]:
    missing, tail = tally.missing, tally.tail
    # a part of the log cannot tell whether keys behind it are in the index, but the index itself can
    # (that of a live store may have had no entry yet when it was looked through)
    has_none = tally.last_matched < 0 and not seen.is_live
    is_inside = has_none if seen.is_whole else tail.first_offset < survey.last_offset
    if tail.count and is_inside:
        missing = Misses(missing.count, missing.first_offset, missing.last_offset, missing.messages, missing.samples)
        missing.merge(tail)
        tail = Misses()
    if missing.count:
        said = "message has keys that are not in the index", "messages have keys that are not in the index"
        yield _of_keys(survey, files, missing, "RMQ-IDX-001", said)
    if tail.count:
        code = "RMQ-IDX-002" if not seen.is_live else "RMQ-IDX-019"
        said = (
            "message at the end of the log is not in the index yet",
            "messages at the end of the log are not in the index yet",
        )
        yield _of_keys(survey, files, tail, code, said)


def _of_keys(survey: IndexSurvey, files: StoreFiles, misses: Misses, code: str, said: tuple[str, str]) -> Finding:
    message = message_if_any(files.log, misses.first_offset)
    return Finding(
        code,
        f"{counted(misses.messages, *said)} ({counted(misses.count, 'key')}), the first at physical offset "
        f"{misses.first_offset}",
        file=_file_of(survey, misses.first_offset) or files.layout.index,
        physical_offset=misses.first_offset,
        topic=message.topic if message is not None else None,
        queue_id=message.queue_id if message is not None else None,
        bytes=20 * misses.count,
        messages=misses.messages,
    )


def _of_entries(survey: IndexSurvey, misses: Misses, code: str, said: tuple[str, str]) -> Finding:
    offset, _, file, number, *values = misses.samples[0]
    expected, found = values or (None, None)
    return Finding(
        code,
        f"{counted(misses.count, *said)}, the first is entry {number}, of physical offset {offset}",
        file=survey.files[file].path,
        physical_offset=offset,
        expected=expected,
        found=found,
        bytes=20 * misses.count,
        messages=misses.messages,
    )


def _file_of(survey: IndexSurvey, offset: int) -> Path | None:
    """The file in which a message's entries would stand."""
    found: Path | None = None
    for file in survey.files:
        if file.stretches and file.stretches[0].first_offset <= offset:
            found = file.path
    return found


_EVERYTHING = 1 << 62


class IndexCheck:
    """`add` the runs of the log in its order, those that tasks have compared already too, then `finish` once.

    The index files are looked through when the first run comes. Memory: 4 bytes for every slot of one file, and the
    entries of one run. A `survey` that was made elsewhere may be given. `is_live`: another process writes to the store.
    """

    def __init__(
        self,
        files: StoreFiles,
        survey: IndexSurvey | None = None,
        *,
        is_live: bool = False,
        error: UnreadableError | None = None,
    ) -> None:
        """`error`: why there is no survey that tasks could have gone by."""
        self._error = error
        self._files = files
        self._survey = survey
        self._is_live = is_live
        self._comparison: IndexComparison | None = None
        self._is_wanted = files.config.writes_index_files

    @property
    def survey(self) -> IndexSurvey:
        """The index files by themselves; can be pickled."""
        if self._survey is None:
            self._survey = survey_index(self._files.index, self._files.descriptors, is_live=self._is_live)
        return self._survey

    @property
    def tally(self) -> IndexTally:
        """What was found so far; can be pickled."""
        return self._compared().tally

    def _compared(self) -> IndexComparison:
        if self._comparison is None:
            reader = EntryReader(self.survey, self._files.descriptors)
            self._comparison = IndexComparison(self.survey, reader, self._files.log)
        return self._comparison

    def add(self, run: Run) -> None:
        """The log holds these messages."""
        if not self._is_wanted:
            return
        if not isinstance(run, TalliedRun):
            self._compared().take(run)
        elif (error := self._error or run.index_error) is not None:
            raise error
        else:
            self.tally.merge(run.index_tally)

    def finish(self, seen: LogSeen) -> Iterator[Finding]:
        """What differs. At the quick level headers, first and last entries are looked at, and no more."""
        if not self._is_wanted:
            return
        if self._error is not None:
            raise self._error
        if seen.level is Level.QUICK and self._survey is None:
            self._survey = survey_index(self._files.index, self._files.descriptors, is_quick=True)
        tally = self.tally
        yield from file_findings(self._files, self.survey, seen)
        yield from tally_findings(self._files, self.survey, tally, self._dangling(tally, seen), seen)

    def _dangling(self, tally: IndexTally, seen: LogSeen) -> list[Dangling]:
        """Entries that point where no message was compared, by what is there instead."""
        reader = EntryReader(self.survey, self._files.descriptors)
        damaged, compared = damaged_slots(self._files.log, seen), slots_of(tally.compared)
        found: list[Dangling] = []

        def look(kind: str, begin: int, end: int) -> None:
            count = reader.count(begin, end)
            if count:
                found.append(Dangling(kind, count, *reader.first(begin, end)))

        for begin, end in seen.ranges:
            for low, high in compared.gaps(begin, end):
                for first, last in damaged.common(low, high):
                    look("damaged", first, last)
                for first, last in damaged.gaps(low, min(high, seen.log_end)):
                    look("nothing", first, last)
        if not seen.is_live:
            for first, last in damaged.gaps(seen.log_end, _EVERYTHING):
                look("past", first, last)
        return found
