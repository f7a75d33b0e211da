"""What differs between the brokers whose start is predicted (docs/recovery.md)."""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    """How one version starts.

    `tidies_listing`: an empty last file is deleted and directories among the files are passed over; else both have a
    wrong length. `reads_v2`: frames of topics over 127 characters. `knows_batches`: queues of 46-byte units.
    `index_counts`: a failure to load the index is one of the store. `starts_by_queues`: after a clean stop the file
    that holds the queues' end is the first one read, else the third from the end. `dispatches_clean`: what is read
    after a clean stop is dispatched where it lies behind the queues' end. `catches_up`: once started, the store
    dispatches from the queues' end on, bodies unchecked; else from its own end, which is nothing.
    `compares_room`: a frame that is larger than what is left of its file ends the log, whatever its magic says.
    `trusts_filler`: the minimum of a queue is searched from the one it had on.
    """

    version: str
    tidies_listing: bool
    reads_v2: bool
    knows_batches: bool
    index_counts: bool
    starts_by_queues: bool
    dispatches_clean: bool
    catches_up: bool
    trusts_filler: bool
    compares_room: bool


BROKERS: dict[str, Rules] = {
    rules.version: rules
    for rules in (
        Rules("4.9.8", False, False, False, False, False, False, True, False, False),
        Rules("5.3.3", True, True, True, True, True, True, False, True, True),
    )
}
"""The brokers whose start can be predicted."""

CLEAN_STOP_FILES = 3
"""Files that are read after a clean stop where the queues do not say (CommitLog#recoverNormally)."""
