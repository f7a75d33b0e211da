"""Diffs against plain twins: copies that were broken anyhow, sums of digests, the matching of rows."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.message import StoredMessage
from rmqctl.pipeline.jobs import diff_match as diff_rows
from rmqctl.pipeline.jobs.diff import Diff
from rmqctl.pipeline.jobs.diff_compare import Sums, hexadecimal, sums_by_code
from rmqctl.pipeline.jobs.diff_match import Facts, Knowledge, Matched, match
from rmqctl.store.log.walk import Damage, Empty, walk
from rmqctl.store.read.frames import span_of
from rmqctl.store.store_files import StoreFiles
from tests.opened import store_path
from tests.pipeline.jobs.test_diff import diff_of
from tests.quick import examples

Change = tuple[str, int, int]
CHANGES = st.lists(
    st.tuples(st.sampled_from(["flip", "zeros", "cut"]), st.integers(0, 8), st.integers(0, 262_000)), max_size=4
)


def broken(root: Path, changes: list[Change]) -> None:
    """Break the files of a log: a byte, a stretch, or all behind a place."""
    files = sorted((root / "commitlog").iterdir())
    for kind, number, position in changes:
        with files[number % len(files)].open("r+b") as opened:
            size = opened.seek(0, 2)
            at = position % size
            opened.seek(at)
            if kind == "flip":
                byte = opened.read(1)[0]
                opened.seek(at)
                opened.write(bytes([byte ^ 0x10]))
            else:
                opened.write(bytes(size - at if kind == "cut" else min(300, size - at)))


def stored(root: Path) -> tuple[dict[int, StoredMessage], list[Damage], int]:
    """The messages of a log by place, its damage, and where its last record ends, by the serial walk."""
    messages, damage, end = {}, [], 0
    with StoreFiles(root) as files:
        for record in walk(files.log):
            if isinstance(record, StoredMessage):
                messages[record.physical_offset] = record
            elif isinstance(record, Damage):
                damage.append(record)
            if not isinstance(record, Empty):
                end = span_of(record)[1]
    return messages, damage, end


def plain_counts(a: Path, b: Path, found: Diff) -> Counter[tuple[str, str]]:
    """The counts, message by message, of logs whose first files are there."""
    sides = stored(a), stored(b)
    sums: Counter[tuple[str, str]] = Counter()
    in_place = {place for place in sides[0][0].keys() & sides[1][0].keys() if sides[0][0][place] == sides[1][0][place]}
    sums["", "same"] += len(in_place)
    groups: dict[tuple[str, int, int], tuple[list[StoredMessage], list[StoredMessage]]] = {}
    for side in (0, 1):
        for place, one in sides[side][0].items():
            if place not in in_place:
                groups.setdefault((one.topic, one.queue_id, one.queue_offset), ([], []))[side].append(one)
    for ours, theirs in groups.values():
        for one in list(ours):
            twin = next((other for other in theirs if other._replace(physical_offset=one.physical_offset) == one), None)
            if twin is not None:
                sums["", "same"] += 1
                ours.remove(one)
                theirs.remove(twin)
        for one, other in zip(ours, theirs, strict=False):
            is_changed = one.properties().get("UNIQ_KEY") == other.properties().get("UNIQ_KEY")
            sums["", "changed" if is_changed else "replaced"] += 1
        paired = min(len(ours), len(theirs))
        for name, left in (("a", ours[paired:]), ("b", theirs[paired:])):
            _, damage, end = sides[name == "a"]
            others = sides[name == "a"][0].values()
            for one in left:
                offsets = [
                    other.queue_offset for other in others if (other.topic, other.queue_id) == (one.topic, one.queue_id)
                ]
                if found.is_shared:
                    is_hidden = any(
                        span.physical_offset < one.end and one.physical_offset < span.end for span in damage
                    )
                    is_behind = one.physical_offset >= end and not found.is_parted
                    is_cleaned = False
                else:
                    is_hidden = bool(damage)
                    is_behind = bool(offsets) and one.queue_offset > max(offsets)
                    is_cleaned = bool(offsets) and one.queue_offset < min(offsets)
                    is_hidden &= not is_behind and not is_cleaned
                reason = "cleaned" if is_cleaned else "damaged" if is_hidden else "behind" if is_behind else "absent"
                sums[name, reason] += 1
    return +sums


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes_a=CHANGES, changes_b=CHANGES, split_size=st.integers(50_000, 400_000))
def test_copies_that_were_broken_anyhow(
    tmp_path_factory: pytest.TempPathFactory, changes_a: list[Change], changes_b: list[Change], split_size: int
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    a, b = folder / "a", folder / "b"
    for root, changes in ((a, changes_a), (b, changes_b)):
        root.mkdir()
        shutil.copytree(store_path("v4-features") / "commitlog", root / "commitlog")
        broken(root, changes)
    found = diff_of(a, b)
    assert diff_of(a, b, split_size) == found
    sums: Counter[tuple[str, str]] = Counter()
    for (_, side, state), count in found.matched.counts.items():
        sums[side, state] += count
    del sums["", "moved"]
    assert sums == plain_counts(a, b, found)
    if found.is_shared:
        is_same = set(sums) <= {("", "same")} and found.divergence is None and found.a.end == found.b.end
        assert found.is_same == is_same
    shutil.rmtree(folder)


DIGEST = st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))


def sums_of(digests: list[tuple[int, int]]) -> Sums:
    if not digests:
        return Sums()
    [(_, sums)] = sums_by_code(np.zeros(len(digests), np.int64), np.array(digests, np.uint64))
    return sums


@given(st.lists(st.tuples(st.integers(-2, 3), DIGEST), min_size=1, max_size=30))
def test_queues_are_summed_up_as_if_each_were_alone(rows: list[tuple[int, tuple[int, int]]]) -> None:
    codes, digests = np.array([code for code, _ in rows], np.int64), np.array([one for _, one in rows], np.uint64)
    alone = {code: sums_of([one for other, one in rows if other == code]) for code, _ in rows}
    assert dict(sums_by_code(codes, digests)) == alone


@given(st.lists(DIGEST, max_size=30), st.integers(0, 30), st.randoms())
def test_sums_can_be_put_together_and_tell_orders_apart(digests: list[tuple[int, int]], cut: int, random: Any) -> None:
    whole, parts = sums_of(digests), sums_of(digests[:cut])
    parts.join(sums_of(digests[cut:]))
    assert parts == whole
    mixed = list(digests)
    random.shuffle(mixed)
    other = sums_of(mixed)
    assert other.of_all == whole.of_all == tuple(sum(one[lane] for one in digests) % (1 << 64) for lane in (0, 1))
    assert (other.in_order == whole.in_order) == (mixed == digests)
    assert len(hexadecimal(whole.of_all)) == 32


ROWS = st.lists(
    st.tuples(
        st.integers(0, 1),  # side
        st.integers(0, 1),  # topic
        st.integers(0, 3),  # queue offset
        st.integers(1, 3),  # digest
        st.integers(0, 3),  # unique key, 0 for none
    ),
    max_size=14,
)


def pieces_of(rows: list[tuple[int, int, int, int, int]], partitions: int) -> list[list[bytes]]:
    made = np.zeros(len(rows), diff_rows.ROW)
    for number, (side, topic, queue_offset, digest, key) in enumerate(rows):
        made[number]["side"], made[number]["topic"] = side, topic
        made[number]["queue_offset"], made[number]["physical_offset"] = queue_offset, 10 * number
        made[number]["high"], made[number]["key_high"], made[number]["size"] = digest, key, 10
    half = len(rows) // 2
    packed = [diff_rows._packed(part, ["x", "y"], partitions) for part in (made[:half], made[half:])]
    return [list(pieces) for pieces in zip(*packed, strict=True)]


def matched(rows: list[tuple[int, int, int, int, int]], partitions: int) -> Matched:
    facts = Facts(0, 1 << 40, [], {})
    knowledge = Knowledge(facts, facts, True, False, 50)
    found = Matched()
    for pieces in pieces_of(rows, partitions):
        found.add(match(knowledge, pieces), 50)
    return found


@settings(max_examples=examples(80))
@given(ROWS)
def test_matching_is_that_of_multisets_in_any_number_of_partitions(rows: list[tuple[int, int, int, int, int]]) -> None:
    found = matched(rows, 1)
    for partitions in (2, 5):
        assert matched(rows, partitions) == found
    plain: Counter[tuple[str, str, str]] = Counter()
    moved = 0
    for topic, name in enumerate("xy"):
        for queue_offset in range(4):
            here = [Counter(row[3] for row in rows if row[:3] == (side, topic, queue_offset)) for side in (0, 1)]
            same = (here[0] & here[1]).total()
            left = [one.total() - same for one in here]
            plain[name, "", "same"] += same
            plain[name, "", "different"] += min(left)
            plain[name, "a", "absent"] += max(0, left[0] - left[1])
            plain[name, "b", "absent"] += max(0, left[1] - left[0])
        for key in (1, 2, 3):
            places = [Counter(row[2] for row in rows if row[:2] == (side, topic) and row[4] == key) for side in (0, 1)]
            common = (places[0] & places[1]).total()
            moved += min(one.total() - common for one in places)
    folded: Counter[tuple[str, str, str]] = Counter()
    for (topic_name, side_name, state), count in found.counts.items():
        if state != "moved":
            folded[topic_name, side_name, "different" if state in ("changed", "replaced") else state] += count
    assert folded == +plain
    assert sum(count for (_, _, state), count in found.counts.items() if state == "moved") == moved
