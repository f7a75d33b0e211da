"""Every golden: the findings that its damage must give, and none on what RocketMQ left whole."""

from __future__ import annotations

import pytest

from rmqctl.store.check.cross import Level
from tests.goldens import GOLDENS, GoldenStore, is_broken, tree_state
from tests.quick import goldens_of
from tests.store.check.breaking import alarms, checked, codes, config_of

CRASHED = {"crash", "v4-crash"}
WHOLE = [name for name in GOLDENS if not is_broken(name) and name not in CRASHED]

_BEHIND = {"RMQ-CQ-002", "RMQ-IDX-002"}
_FLIPPED = {"RMQ-LOG-005", "RMQ-CQ-009", "RMQ-IDX-006"}
# the alarms of each broken golden, and of those that were killed while dispatch stood still
ALARMS: dict[str, set[str]] = {
    "crash": _BEHIND,
    "v4-crash": _BEHIND,
    "prealloc-last-abort": _BEHIND,
    "checkpoint-future": {*_BEHIND, "RMQ-CKPT-003"},
    "checkpoint-lost-abort": _BEHIND,
    "v4-checkpoint-lost-abort": _BEHIND,
    "cq-lost": {"RMQ-CQ-004"},
    "cq-lost-abort": {"RMQ-CQ-004", "RMQ-IDX-002"},
    "v4-cq-lost": {"RMQ-CQ-004"},
    "cq-short": {"RMQ-FILE-013"},
    "cq-truncated": {"RMQ-CQ-001"},
    "v4-cq-truncated": {"RMQ-CQ-001"},
    "crc-flip-last": _FLIPPED,
    "crc-flip-last-abort": {"RMQ-LOG-005", *_BEHIND},
    "crc-flip-old": _FLIPPED,
    "crc-flip-old-abort": {*_FLIPPED, *_BEHIND},
    "crc-flip-third": _FLIPPED,
    "v4-crc-flip-last": _FLIPPED,
    "v4-crc-flip-last-abort": {"RMQ-LOG-005", *_BEHIND},
    "v4-crc-flip-old": _FLIPPED,
    "empty-last": {"RMQ-FILE-003"},
    "v4-empty-last": {"RMQ-FILE-003"},
    "first-gone": set(),
    "prealloc-last": set(),
    "gap": {"RMQ-FILE-004", "RMQ-CQ-009", "RMQ-IDX-006"},
    "v4-gap": {"RMQ-FILE-004", "RMQ-CQ-009", "RMQ-IDX-006"},
    "index-garbage": {"RMQ-IDX-010"},
    "index-lost": {"RMQ-IDX-003"},
    "index-lost-abort": {"RMQ-CQ-002", "RMQ-IDX-003"},
    "log-gone": {"RMQ-FILE-010"},
    "log-gone-abort": {"RMQ-FILE-010"},
    "v4-log-gone": {"RMQ-FILE-010"},
    "short-last": {"RMQ-FILE-002"},
    "short-middle": {"RMQ-FILE-002", "RMQ-LOG-001", "RMQ-CQ-009", "RMQ-IDX-006"},
    "stray-file": {"RMQ-FILE-001"},
    "tail-garbage-clean": {"RMQ-LOG-012"},
    "torn-zero": {"RMQ-LOG-011", *_BEHIND},
    "torn-zero-clean": {"RMQ-LOG-011", "RMQ-CQ-009", "RMQ-IDX-006"},
    "v4-torn-garbage": {"RMQ-LOG-011", *_BEHIND},
}
# what `--quick` still sees
QUICK: dict[str, set[str]] = {
    "crc-flip-last": {"RMQ-LOG-005"},
    "empty-last": {"RMQ-FILE-003"},
    "gap": {"RMQ-FILE-004"},
    "log-gone": {"RMQ-FILE-010"},
    "short-last": {"RMQ-FILE-002"},
    "stray-file": {"RMQ-FILE-001"},
    "tail-garbage-clean": {"RMQ-LOG-012"},
    "torn-zero": {"RMQ-LOG-011"},
    "cq-short": {"RMQ-FILE-013"},
    "cq-lost": {"RMQ-CQ-004"},
    "v4-cq-lost": {"RMQ-CQ-004"},
}


def test_every_golden_is_judged() -> None:
    assert {*WHOLE, *ALARMS} == set(GOLDENS)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_no_alarm_on_whole_stores(name: str, level: Level, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    before = tree_state(store)
    findings, summary = checked(store, level, config_of(name, store))
    assert not alarms(findings), findings
    assert (summary.alarms, summary.complete, summary.data_lost) == (0, True, False)
    assert tree_state(store) == before


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.FULL])
@pytest.mark.parametrize("name", goldens_of(ALARMS))
def test_alarms_of_broken_stores(name: str, level: Level, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    before = tree_state(store)
    findings, summary = checked(store, level)
    assert alarms(findings) == ALARMS[name], findings
    # a commitlog that is gone nobody can mend but the one who has it
    assert any(finding.fix for finding in findings) or ALARMS[name] <= {"RMQ-FILE-010"}
    assert summary.errors + summary.warnings + summary.notices == len(findings)
    assert tree_state(store) == before


@pytest.mark.parametrize("name", QUICK)
def test_quick_sees_heads_and_tails(name: str, golden_store: GoldenStore) -> None:
    findings, _ = checked(golden_store(name), Level.QUICK)
    assert QUICK[name] <= codes(findings), findings


@pytest.mark.parametrize("name", goldens_of(name for name, found in ALARMS.items() if not found))
def test_quick_is_silent_where_nothing_is_wrong(name: str, golden_store: GoldenStore) -> None:
    findings, _ = checked(golden_store(name), Level.QUICK)
    assert not alarms(findings)


@pytest.mark.parametrize(
    ("name", "code", "messages", "lost"),
    [
        ("gap", "RMQ-FILE-004", 304, True),
        ("v4-gap", "RMQ-FILE-004", 307, True),
        ("short-last", "RMQ-FILE-002", 0, False),
        ("short-middle", "RMQ-FILE-002", 130, True),
        ("crc-flip-third", "RMQ-LOG-005", 1, True),
        ("torn-zero-clean", "RMQ-LOG-011", 1, True),
        ("tail-garbage-clean", "RMQ-LOG-012", 0, False),
        ("log-gone", "RMQ-FILE-010", 2500, True),
        ("cq-lost", "RMQ-CQ-004", 2500, False),
    ],
)
def test_what_it_costs(name: str, code: str, messages: int, lost: bool, golden_store: GoldenStore) -> None:
    findings, summary = checked(golden_store(name))
    (finding,) = [finding for finding in findings if finding.code == code]
    assert (finding.messages, finding.data_lost) == (messages, lost)
    assert summary.data_lost is lost


def test_summary_counts(golden_store: GoldenStore) -> None:
    _, summary = checked(golden_store("clean"), Level.FULL)
    assert (summary.files, summary.messages, summary.log_end) == (9, 2500, 2135612)
    assert summary.ranges == [(0, 9 * 262144)]
    assert (summary.uncovered_messages, summary.queues_checked, summary.index_checked) == (2500, True, True)
    _, covered = checked(golden_store("propcrc"), Level.FULL)
    assert covered.uncovered_messages == 0
