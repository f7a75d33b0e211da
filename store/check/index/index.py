"""The key index against the commitlog, both ways: the check that one walk over the log feeds."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.check.index.compare import IndexComparison, IndexTally
from rmqctl.store.check.index.findings import Dangling, file_findings, tally_findings
from rmqctl.store.check.index.index_files import EntryReader, IndexSurvey, survey_index
from rmqctl.store.check.queues.look import damaged_slots, slots_of
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Run

_EVERYTHING = 1 << 62


class IndexCheck:
    """`add` the runs of the log in its order, or `merge` what was found in its parts, then `finish` once.

    The index files are looked through when the first run comes. Memory: 4 bytes for every slot of one file, and the
    entries of one run. A `survey` that was made elsewhere may be given. `is_live`: somebody writes to the store.
    """

    def __init__(self, files: StoreFiles, survey: IndexSurvey | None = None, *, is_live: bool = False) -> None:
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
        if self._is_wanted:
            self._compared().take(run)

    def merge(self, later: IndexTally) -> None:
        """A part of the log that follows was compared elsewhere; `later` is used up."""
        if self._is_wanted:
            self.tally.merge(later)

    def finish(self, seen: LogSeen) -> Iterator[Finding]:
        """What differs. At the quick level headers, first and last entries are looked at, and no more."""
        if not self._is_wanted:
            return
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
