"""After `repair` both real brokers start on every broken golden and serve everything that was valid; the same after
`truncate` up to the offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.recover.bridge import DAMAGED_PROPERTY
from rmqctl.store.recover.recover import truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import broker_conf, properties, truth
from tests.interop import harness
from tests.interop.harness import VERSIONS, Job
from tests.interop.test_recovered import LOG_GONE, UNPLACEABLE, expected_messages, is_expected

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

BROKEN = sorted(
    {name for name in goldens.GOLDENS if goldens.is_broken(name) or goldens.is_crashed(name)} - UNPLACEABLE - LOG_GONE
)
# what the damage itself took: as test_bridged says message by message
DAMAGED = {
    "crc-flip-last": 1, "crc-flip-last-abort": 1, "crc-flip-old": 1, "crc-flip-old-abort": 1, "crc-flip-third": 1,
    "gap": 304, "short-middle": 131, "torn-zero": 1, "torn-zero-clean": 1, "v4-crc-flip-last": 1,
    "v4-crc-flip-last-abort": 1, "v4-crc-flip-old": 1, "v4-gap": 307, "v4-torn-garbage": 1,
}  # fmt: skip


def all_messages(name: str) -> dict[int, str]:
    """The golden's messages, and those of the one that it was made of by breaking it."""
    base = goldens.base_of(name)
    found = expected_messages(base, 1 << 62) if base is not None else expected_messages(name, 1 << 62)
    if name == "first-gone":
        return {offset: digest for offset, digest in found.items() if offset >= 524288}
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_every_repaired_golden(version: str, tmp_path: Path) -> None:
    jobs = []
    for name in BROKEN:
        store = goldens.golden(name, tmp_path)
        with StoreFiles(store, read_broker_conf(broker_conf(name, tmp_path))) as files:
            assert repair(files).left == []
        jobs.append(Job(store, properties(name)))
    complaints = []
    for name, view in zip(BROKEN, harness.open_many(version, jobs), strict=True):
        found = [text for text in view.complaints() if "not found by a consumer" in text or not is_expected(name, text)]
        if name in ("first-gone", "prealloc-last"):
            # expired messages; and a prepared file is no damage, so it is left to the broker, which takes it away
            found = [
                text for text in found if not is_expected(name, text) and not text.startswith("changed: commitlog/")
            ]
        seen = {m.physical_offset: m.body_sha256 for m in view.messages if DAMAGED_PROPERTY not in m.properties}
        expected = all_messages(name)
        wrong = [offset for offset, digest in seen.items() if expected.get(offset) != digest]
        missing = len(expected) - len(seen)
        if missing > DAMAGED.get(name, 0) or len(wrong) > DAMAGED.get(name, 0):
            found.append(f"{missing} messages are missing, {len(wrong)} are wrong: {wrong[:3]}")
        complaints += [f"{name}: {text}" for text in found]
    assert complaints == []


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_serve_every_truncated_store(version: str, tmp_path: Path) -> None:
    offsets = [truth("clean").messages[number]["phyOffset"] for number in (1, 700, 1234, 2499)]
    # before and behind a blank frame, at a file's start, and where nothing is left
    offsets += [261787, 262144, 524288, 0]
    jobs = []
    for number, at in enumerate(offsets):
        store = goldens.golden("clean", tmp_path / str(number))
        with StoreFiles(store, read_broker_conf(broker_conf("clean", tmp_path / str(number)))) as files:
            assert truncate(files, at).end_offset == at
        jobs.append(Job(store, properties("clean")))
    complaints = []
    for at, view in zip(offsets, harness.open_many(version, jobs), strict=True):
        found = view.complaints()
        expected = expected_messages("clean", at)
        seen = {message.physical_offset: message.body_sha256 for message in view.messages}
        if seen != expected:
            found.append(f"serves {len(seen)} messages of {len(expected)}")
        complaints += [f"{at}: {text}" for text in found]
    assert complaints == []
