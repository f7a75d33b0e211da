"""Plans what follows the end of the log. What is left past it makes a broker take new messages for old ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.files.presence import is_file
from rmqctl.store.journal.frame import PlannedChange
from rmqctl.store.journal.plan import Plan
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.recover.followers.epochs import plan_epochs_end
from rmqctl.store.recover.followers.offsets import QueueEnds, plan_offsets_end
from rmqctl.store.recover.followers.timer import plan_timer_end


def plan_followers(
    change: PlannedChange, plan: Plan, log_end: int, ends: QueueEnds, *, is_cut: bool, crashed: bool
) -> None:
    """Plan that timer, epochs and offsets fit a commitlog that ends at `log_end` and queues that end at `ends`.

    `is_cut`: something of the log goes. Offsets only follow a cut, or a crash (`crashed`), which may have lost the last
    messages: what else is past an end was set by a person.
    """
    with _passing_over_unreadable(is_cut=is_cut):
        plan_timer_end(change.files, plan, log_end, ends.get((TIMER_TOPIC, 0), 0))
    with _passing_over_unreadable(is_cut=is_cut):
        plan_epochs_end(change.files, plan, change.staging, log_end, is_cut=is_cut)
    if is_cut or crashed:
        plan_offsets_end(change.files, plan, change.staging, ends)


@contextmanager
def _passing_over_unreadable(*, is_cut: bool) -> Iterator[None]:
    """Leave files that are not regular, which no broker reads either; where nothing is cut (`is_cut`) also those that
    this user cannot read. `check` reports both.

    Raises: UnreadableError for a file that may lead past the new end.
    """
    try:
        yield
    except UnreadableError as error:
        if error.file is None or (is_cut and is_file(error.file)):
            raise
