"""Name what a broker lacks once `repair` has moved a state file that it cannot read out of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqctl.formats.wording import counted
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.config_start import look_at
from rmqctl.store.config.homes import OWN_TABLES
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE


def consequences(files: StoreFiles, paths: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence for each of `paths` without which a broker forgets what it did."""
    config = files.layout.config
    for path in paths:
        if path == config / CHECKPOINT_FILE:
            yield from _of_timer(files)
        elif path.parent == config and path.name in OWN_TABLES:
            yield _of_table(path)


def _of_timer(files: StoreFiles) -> Iterator[str]:
    queue = files.queues.find(TIMER_TOPIC, 0)
    messages = 0 if queue is None else queue.max_offset - queue.min_offset(files.log.min_offset)
    if messages > 0:
        yield (
            f"without config/{CHECKPOINT_FILE} a broker reads its timer queue again from the start: those of its "
            f"{counted(messages, 'message')} that are due are delivered again, those that wait are delivered twice. "
            f"To prevent that, put a copy of {CHECKPOINT_FILE} from a backup in its place before the broker starts"
        )


def _of_table(path: Path) -> str:
    if look_at(backup_of(path)).is_good:
        return f"a broker takes config/{path.name}.bak instead of config/{path.name}"
    return f"config/{path.name} has no good backup: a broker starts with an empty table in its place"
