"""The epoch file of a store under a controller against the commitlog."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.wording import counted
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.config.epoch_file import EPOCH_FILE, ascending, read_epochs
from rmqctl.store.store_files import StoreFiles


def epoch_findings(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Yield what is wrong with the epoch file."""
    path = files.layout.root / EPOCH_FILE
    try:
        epochs = read_epochs(path)
    except CorruptError as error:
        yield Finding("RMQ-EPO-002", error.message, path)
        return
    except UnreadableError:
        return  # a finding of the files
    kept = len(ascending(epochs or []))
    if epochs and kept < len(epochs):
        before, after = epochs[kept - 1 : kept + 1]
        text = f"epoch {after.number} at {after.start} follows epoch {before.number} at {before.start}"
        yield Finding("RMQ-EPO-003", text, path, after.start, expected=before.start, found=after.start)
    past = [epoch for epoch in epochs or [] if epoch.start > seen.log_end]
    if past and not seen.is_live:
        more = f" (and {counted(len(past) - 1, 'more epoch')})" if len(past) > 1 else ""
        text = f"epoch {past[0].number} begins at {past[0].start}, past the end {seen.log_end}{more}"
        yield Finding("RMQ-EPO-001", text, path, past[0].start, expected=seen.log_end, found=past[0].start)
