"""A check bit by bit: shares of the files, a bound on the time, going on where the last one stopped, stopping early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import CheckSummary, ScrubState, Subset, load_state, parse_subset, save_state
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.quick import goldens_of, sample
from tests.store.check.breaking import LOG_FILE_SIZE, alarms, checked, codes


def _checked(store: Path, **options: object) -> tuple[list[Finding], CheckSummary]:
    with StoreFiles(store) as files:
        run = check(files, **options)  # type: ignore[arg-type]  # each test names options of check
        return list(run), run.summary


@pytest.mark.parametrize("shares", sample([1, 2, 4, 7, 20], [4]))
@pytest.mark.parametrize(
    "name", goldens_of(["clean", "gap", "crc-flip-old", "crc-flip-last", "short-middle", "crash", "multipath"])
)
def test_all_shares_find_what_the_whole_finds(name: str, shares: int, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    if name == "multipath":
        # found without a configuration only where the files are in their usual place
        (store / "commitlog").mkdir()
        for file in (*store.glob("cl-?/0*"),):
            file.rename(store / "commitlog" / file.name)
    whole, summary = checked(store)
    found: set[str] = set()
    messages = 0
    for number in range(1, shares + 1):
        findings, part = _checked(store, subset=Subset(number, shares))
        found |= codes(findings)
        messages += part.messages
        assert (part.log_begin, part.log_end, part.complete) == (summary.log_begin, summary.log_end, True)
    assert messages == summary.messages
    # a share that holds no indexed message cannot tell keys that are missing from keys that are still to come
    assert found - {"RMQ-IDX-001"} == codes(whole)


def test_a_share_finds_only_its_own(golden_store: GoldenStore) -> None:
    """The damaged message is in the second file."""
    store = golden_store("crc-flip-old")
    for number in range(1, 10):
        findings, part = _checked(store, subset=Subset(number, 9))
        assert bool(alarms(findings)) is (number == 2), (number, findings)
        assert part.ranges == [((number - 1) * LOG_FILE_SIZE, number * LOG_FILE_SIZE)]


def test_a_file_stays_in_its_share_as_the_log_grows() -> None:
    assert [Subset(2, 3).has(start * 100, 100) for start in range(6)] == [False, True, False, False, True, False]


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "a/b", "-1/3", "1/0", "1/3/5", "١/٣"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UsageError):
        parse_subset(text)


def test_share_by_text() -> None:
    assert parse_subset("3/7") == Subset(3, 7)


def test_time_is_over_and_the_next_one_goes_on(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crc-flip-third")
    state = tmp_path / "state.json"
    before = tree_state(store)
    messages, runs, found = 0, 0, []
    while True:
        findings, part = _checked(store, max_duration=0.0, resume=state)
        found += findings
        messages += part.messages
        runs += 1
        if part.complete:
            break
        assert part.stopped_by == "max_duration"
        assert part.next_offset == runs * LOG_FILE_SIZE
    assert (runs, messages) == (9, 2499)
    assert codes(found) == codes(checked(store)[0])
    content = json.loads(state.read_text(encoding="utf-8"))
    assert (content["next_offset"], content["passes"], content["alarms"]) == (None, 1, len(found))
    # the next one begins anew
    _, part = _checked(store, max_duration=0.0, resume=state)
    assert part.ranges == [(0, LOG_FILE_SIZE)]
    assert tree_state(store) == before


def _killed_after(store: Path, state: Path, size: int) -> list[Finding]:
    """The findings of a check that is interrupted when so many bytes have passed."""
    passed = 0
    found: list[Finding] = []

    def progress(done: int) -> None:
        nonlocal passed
        passed += done
        if passed > size:
            raise KeyboardInterrupt

    with StoreFiles(store) as files:
        run = check(files, resume=state, events=Events(progress))
        with pytest.raises(KeyboardInterrupt):
            found.extend(run)
        assert run.saved_offset == json.loads(state.read_text(encoding="utf-8"))["next_offset"]
    return found


@pytest.mark.parametrize("name", ["crc-flip-third", "cq-truncated"])
def test_what_was_covered_before_an_interruption_is_kept(
    name: str, golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass for each file here; of those that were finished all is told, and they are not walked again."""
    monkeypatch.setattr("rmqctl.store.check.check.SAVED_EVERY_S", 0.0)
    store, state = golden_store(name), tmp_path / "state.json"
    before = tree_state(store)
    found: list[Finding] = []
    for files_passed in (4, 7):
        found += _killed_after(store, state, 4 * LOG_FILE_SIZE - 1 if files_passed == 4 else 3 * LOG_FILE_SIZE - 1)
        saved = json.loads(state.read_text(encoding="utf-8"))
        assert 0 < saved["next_offset"] <= files_passed * LOG_FILE_SIZE
        assert (saved["passes"], saved["alarms"]) == (0, len(found))
    findings, part = _checked(store, resume=state)
    assert part.ranges == [(saved["next_offset"], 9 * LOG_FILE_SIZE)]
    assert (part.complete, part.stopped_by) == (True, None)
    assert codes([*found, *findings]) == codes(checked(store)[0])
    assert json.loads(state.read_text(encoding="utf-8"))["passes"] == 1
    assert tree_state(store) == before


def test_passes_of_one_check_are_summed_up(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("crc-flip-old")
    whole, summary = _checked(store, level="full")
    monkeypatch.setattr("rmqctl.store.check.check.SAVED_EVERY_S", 0.0)
    findings, part = _checked(store, level="full", resume=tmp_path / "state.json")
    assert codes(findings) == codes(whole)
    assert (part.ranges, part.messages, part.bytes) == (summary.ranges, summary.messages, summary.bytes)
    assert (part.uncovered_messages, part.complete, part.next_offset) == (2499, True, None)


def test_files_that_expired_meanwhile(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    state = tmp_path / "state.json"
    _checked(store, max_duration=0.0, resume=state)
    for number in range(4):
        (store / "commitlog" / f"{number * LOG_FILE_SIZE:020d}").unlink()
    findings, part = _checked(store, resume=state)
    assert part.ranges == [(4 * LOG_FILE_SIZE, 9 * LOG_FILE_SIZE)]
    assert part.complete
    assert not alarms(findings)


def test_another_level_begins_anew(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    state = tmp_path / "state.json"
    _checked(store, max_duration=0.0, resume=state)
    _, part = _checked(store, level="full", max_duration=0.0, resume=state)
    assert part.ranges == [(0, LOG_FILE_SIZE)]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version":2}', '{"version":1,"color":"red"}', "\0"])
def test_a_file_that_is_no_state_is_left_alone(content: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    state = tmp_path / "notes"
    state.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError):
        _checked(golden_store("clean"), resume=state)
    assert state.read_text(encoding="utf-8") == content


def test_fail_fast(golden_store: GoldenStore) -> None:
    findings, summary = _checked(golden_store("gap"), fail_fast=True)
    assert len(alarms(findings)) == 1
    assert findings[-1].severity.is_alarm
    assert (summary.complete, summary.stopped_by) == (False, "fail_fast")


def test_fail_fast_where_nothing_is_wrong(golden_store: GoldenStore) -> None:
    findings, summary = _checked(golden_store("prealloc-last"), fail_fast=True)
    assert codes(findings) == {"RMQ-FILE-011"}
    assert (summary.complete, summary.stopped_by) == (True, None)


@pytest.mark.parametrize(
    "value",
    ["Infinity", "-1", "1.5", '"5"', "true", "[1]", "1" + "0" * 30, "[" * 100_000, "{}", "[]", '""', "false", "0.0"],
)
def test_a_state_that_no_check_wrote_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "state"
    save_state(path, ScrubState("full", None, 12345, 7))
    text = path.read_text(encoding="utf-8")
    assert "12345" in text
    path.write_text(text.replace("12345", value), encoding="utf-8")
    with pytest.raises(UsageError, match="is not a progress file"):
        load_state(path, "full", None)
