"""What `serve --recover` does before it serves: a crashed store is made whole, as a broker does at its start."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rmqctl.flags.options import StoreLocation
from rmqctl.formats.errors import NotAStoreError, RefusedError
from rmqctl.formats.wording import counted

if TYPE_CHECKING:
    from rmqctl.store.recover.report import RecoverReport


def recover_first(store: StoreLocation, tell: Callable[[str], None]) -> None:
    """Recover the store if it was not closed cleanly; say what that did.

    It is the recovery of `rmqctl recover`, with its journal. Raises what that raises: RefusedError where damage has
    good messages behind it, StoreInUseError. A store that was closed, or is not there, is left to `serve`.
    """
    from rmqctl.confirm import agree_to_loss
    from rmqctl.new_file_sizes import decide_sizes, tell_index_size
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.progress import progress

    with contextlib.suppress(NotAStoreError), open_store(store, tell) as opened:
        if not opened.files.has_abort():
            return
        assumes_index = decide_sizes(opened.files, None, None)
        with progress("recovering the store", log_bytes(opened.files, passes=1), "bytes") as bar:
            report = opened.recover(arguments=sys.argv[1:], progress=bar.advance, agree=agree_to_loss(False))
        tell_index_size(assumes_index, report.index_files_rebuilt, dry_run=False)
        tell(_outcome(report, store))


def _outcome(report: RecoverReport, store: StoreLocation) -> str:
    parts = [
        f"{counted(report.messages, 'message')} up to physical offset {report.end_offset}",
        f"{counted(report.truncated_bytes, 'byte')} cut",
        f"{counted(report.units_added, 'unit')} added and {report.units_removed} removed in "
        f"{counted(report.queues_changed, 'queue')}",
        f"{counted(report.index_files_rebuilt, 'index file')} rebuilt",
    ]
    text = f"recovered after a crash: {', '.join(parts)}"
    if report.damaged or report.left:
        text += "; damage that no broker looks at is left: `rmqctl check` names it"
    if report.journal is not None:
        text += f"; `rmqctl undo -s {shlex.quote(str(store.path))}` takes it back once this has ended"
    return text


@contextlib.contextmanager
def naming_recover(store: StoreLocation) -> Iterator[None]:
    """Have the refusal of a crashed store name --recover too."""
    try:
        yield
    except RefusedError as error:
        if error.hint is not None and "rmqctl recover" in error.hint and (store.path / "abort").exists():
            error.hint += "; or add --recover, which does so and then serves it"
        raise
