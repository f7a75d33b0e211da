"""The diff of two stores: where their commitlogs part, and which messages one of them has and the other has not.

Two passes: the first walks both logs and compares their bytes, the second makes digests and matches what is not the
same at the same place, by an exchange in partitions. Memory grows with queues and damage, not with messages.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqctl.pipeline.engine.engine import Engine
from rmqctl.pipeline.engine.exchange import exchange
from rmqctl.pipeline.jobs.diff.compare import Compared, Pair, Side, compare, plan_pairs
from rmqctl.pipeline.jobs.diff.match import SAME, Facts, Knowledge, Matched, match
from rmqctl.pipeline.jobs.diff.rows import Likeness, digest
from rmqctl.pipeline.jobs.digests import Sums
from rmqctl.pipeline.splits.over_splits import on_done_telling, whole_files_at_need
from rmqctl.pipeline.splits.splits import SPLIT_SIZE
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.scan.schema import require_pyarrow
from rmqctl.store.store_files import StoreFiles

# the unmatched messages of this many bytes of log make a partition: 60 bytes of hundreds, twice, for each message
PARTITION_BYTES = 512 * 1024 * 1024
_EVERYTHING = (-(1 << 63), (1 << 63) - 1)
_PASSES = 2


@dataclass(slots=True)
class Diff:
    """The two stores side by side.

    `is_shared`: they are copies of one log (some message is the same, at the same physical offset, and so is the size
    of the files: with another one, all messages behind the first file have other places). Then `agree_until`
    is the physical offset from which on they do not agree, because they part there (`divergence`, the first byte that
    is not the same) or because the shorter one ends. `last_same`: the last message that both have at one place; in
    front of the divergence, if each log went its own way, behind it, if one was damaged. `same_again`: how many
    messages behind the divergence are the same. `matched` has all differences; `sums` digests by queue of what both
    could have: of copies the stretch that both cover.
    """

    a: Side
    b: Side
    min_offsets: tuple[int, int]
    content: bool = False
    is_shared: bool = False
    divergence: int | None = None
    agree_until: int | None = None
    last_same: int | None = None
    same_again: int = 0
    matched: Matched = field(default_factory=Matched)
    sums: tuple[dict[QueueKey, Sums], dict[QueueKey, Sums]] = field(default_factory=lambda: ({}, {}))

    @property
    def is_parted(self) -> bool:
        """Whether the logs are one up to the divergence, and have nothing in common behind it."""
        if self.divergence is None or self.last_same is None:
            return False
        return self.last_same < self.divergence

    @property
    def is_same(self) -> bool:
        """Whether both hold the same messages, and copies of one log also the same bytes as far as their records go,
        unless only content counts."""
        states = {state for _, _, state in self.matched.counts}
        places_count = self.is_shared and not self.content
        same_bytes = not places_count or (self.divergence is None and self.a.end == self.b.end)
        return states <= {SAME} and same_bytes


def diff(
    engine: Engine,
    a: StoreFiles,
    b: StoreFiles,
    *,
    content: bool = False,
    limit: int = 20,
    split_size: int = SPLIT_SIZE,
    progress: Progress | None = None,
) -> Diff:
    """Compare two stores; the same for any engine and any split size.

    `content`: compare what producers said only, not what a broker adds (store time and host, and the like). `limit`:
    differences that are kept with their places. `progress` is told bytes, in all as many as `work_of` says. Damage is
    counted and told as such, never raised; errors of reading as of `split_columns`.
    """
    require_pyarrow()

    def work(size: int, told: Progress | None) -> Diff:
        return _over(engine, a, b, plan_pairs(a, b, size), content, limit, told)

    return whole_files_at_need(split_size, work, progress)


def work_of(a: StoreFiles, b: StoreFiles) -> int:
    """How many bytes a diff will tell of: those that one of the logs has, or both, once for each pass."""
    return _PASSES * _length(plan_pairs(a, b, SPLIT_SIZE))


def _length(pairs: Sequence[Pair]) -> int:
    return sum(pair.end - pair.begin for pair in pairs)


def _over(
    engine: Engine,
    a: StoreFiles,
    b: StoreFiles,
    pairs: Sequence[Pair],
    content: bool,
    limit: int,
    progress: Progress | None,
) -> Diff:
    """The diff, by these stretches of the logs."""
    length = _length(pairs)
    compared = engine.run("comparing", compare, pairs, on_done_telling(progress, length, len(pairs)))
    found = _first_look(a, b, content, compared)
    size = sum(pair.end - pair.begin for pair, look in zip(pairs, compared, strict=True) if not look.is_same)
    plan = Likeness(content, *_common(found), max(1, -(-size // PARTITION_BYTES)), found.divergence)
    knowledge = Knowledge(_facts(found, 0), _facts(found, 1), found.is_shared, found.is_parted, limit)
    # what is not kept of a look need not travel
    items = [(pair, look.is_same) for pair, look in zip(pairs, compared, strict=True)]
    task, reduce = functools.partial(digest, plan), functools.partial(match, knowledge)
    on_done = on_done_telling(progress, length, len(items))
    digested, matched = exchange(engine, "matching", task, items, 2 * plan.partitions, reduce, on_done)
    for part in digested:
        for sums, more in zip(found.sums, (part.a, part.b), strict=True):
            for queue, later in more.items():
                sums.setdefault(queue, Sums()).join(later)
        found.same_again += part.again
        found.matched.counts += Counter({(topic, "", SAME): count for topic, count in part.in_place.items()})
    for one in matched:
        found.matched.add(one, limit)
    return found


def _first_look(a: StoreFiles, b: StoreFiles, content: bool, compared: Sequence[Compared]) -> Diff:
    """What the first pass says of the stores."""
    found = Diff(Side(), Side(), (a.log.min_offset, b.log.min_offset), content)
    for look in compared:
        found.a.add(look.a)
        found.b.add(look.b)
    found.last_same = max((look.last_same for look in compared if look.last_same is not None), default=None)
    # the size of an only file may be anything
    same_sizes = a.log.file_size == b.log.file_size or min(len(a.log.files), len(b.log.files)) < 2
    found.is_shared = found.last_same is not None and same_sizes
    if found.is_shared and found.a.end is not None and found.b.end is not None:
        shorter = min(found.a.end, found.b.end)
        first = next((look.first_difference for look in compared if look.first_difference is not None), None)
        found.divergence = first if first is not None and first < shorter else None
        found.agree_until = shorter if found.divergence is None else found.divergence
    return found


def _common(found: Diff) -> tuple[int, int]:
    """The physical offsets that digests are made of: of copies what both cover."""
    if not found.is_shared or found.a.end is None or found.b.end is None:
        return _EVERYTHING
    return max(found.min_offsets), min(found.a.end, found.b.end)


def _facts(found: Diff, side: int) -> Facts:
    seen = (found.a, found.b)[side]
    spans = [(span.physical_offset, span.end) for span in seen.damage]
    begins, ends = tuple(begin for begin, _ in spans), tuple(end for _, end in spans)
    return Facts(found.min_offsets[side], seen.end or 0, (begins, ends), seen.queues)
