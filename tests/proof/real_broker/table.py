"""What a real broker does otherwise than ours, and why: the only differences that the proof lets pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Difference(NamedTuple):
    """Texts that `told` matches are explained by `why`, which is said at length in `page`."""

    name: str
    told: re.Pattern[str]
    why: str
    page: str


DIFFERENCES = (
    Difference(
        "a blank at the end",
        re.compile(r"ends at \d+, before the blank that ends the log, not at \d+$"),
        "a broker counts no blank frame that nothing follows: its next message takes its place, ours goes behind it",
        "docs/recovery.md",
    ),
    Difference(
        "damage that was left",
        re.compile(r"lies in damage that was left$"),
        "recover leaves damage where no broker looks; a broker gives out what units point at, and compares no CRC",
        "docs/recovery.md",
    ),
    Difference(
        "keys lost after a kill",
        re.compile(r"was to see: answer .*, with index entries that were predicted to go$"),
        "after a crash a broker deletes its newest index files, and dispatches only what the checkpoint does not cover",
        "docs/recovery.md",
    ),
    Difference(
        "passed over",
        re.compile(r"is passed over behind damage that was left$"),
        "where a broker cannot give out a message it sends consumers on to the next file of the queue",
        "docs/recovery.md",
    ),
    Difference(
        "an expired queue",
        re.compile(r"4\.9\.8: .* has expired as a whole$"),
        "4.9.8 moves the begin of a queue to its first message that is there, and not at all where there is none",
        "docs/recovery.md",
    ),
    Difference(
        "an expired first file",
        re.compile(r" begins in a file that has expired$"),
        "a broker looks for the begin of a queue in its first file alone, until its cleaner has removed that",
        "docs/recovery.md",
    ),
    Difference(
        "placeholders",
        re.compile(r" begins with placeholders$"),
        "while nothing has expired a broker lets a queue begin with the placeholders of its first file",
        "docs/recovery.md",
    ),
    Difference(
        "a body that is not packed",
        re.compile(r": nobody can unpack Slot\("),
        "no checksum covers the bit that says whether a body is packed: recover leaves the message, no client reads it",
        "docs/durability.md",
    ),
    Difference(
        "indexed again",
        re.compile(r": changed: index/\d+, with messages of no queue at the log's end$"),
        "a broker dispatches what is behind its queues at each start: keys of messages there, which are in no queue, "
        "are indexed again",
        "docs/recovery.md",
    ),
)


def unexplained(told: Iterable[str]) -> list[str]:
    """What no row of the table explains."""
    return [text for text in told if not any(row.told.search(text) for row in DIFFERENCES)]
