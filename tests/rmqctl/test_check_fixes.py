"""The command that a finding names mends it: run as it stands, then checked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import GoldenStore
from tests.rmqctl.looking import run
from tests.store.check import test_old_messages, test_pains_of_config, test_pains_of_files, test_pains_of_the_log
from tests.store.check.breaking import alarms, checked, codes

_FILES = [pain for pain in test_pains_of_files.PAINS if pain.fix]
_LOG = [pain for pain in test_pains_of_the_log.PAINS if pain.fix]
_CONFIG = [pain for pain in test_pains_of_config.PAINS if pain.is_mended]


def _mend_and_look(store: Path, code: str, *, only_known: bool = True) -> None:
    findings, _ = checked(store)
    (fix, *_others) = [finding.fix for finding in findings if finding.code == code]
    assert fix is not None
    program, *arguments = fix.split()
    assert program == "rmqctl"
    done = run(*arguments, "-s", store)
    assert done.code in (0, 1), done.err
    after, _ = checked(store)
    assert code not in codes(after), after
    if only_known:
        assert not alarms(after), after


@pytest.mark.parametrize("pain", _FILES, ids=lambda pain: pain.name)
def test_files(pain: test_pains_of_files.Pain, golden_store: GoldenStore) -> None:
    store = golden_store(pain.base)
    pain.make(store)
    _mend_and_look(store, pain.code)


@pytest.mark.parametrize("pain", _LOG, ids=lambda pain: pain.name)
def test_the_log(pain: test_pains_of_the_log.Pain, golden_store: GoldenStore) -> None:
    store = golden_store(pain.base)
    pain.make(store)
    _mend_and_look(store, pain.code)


@pytest.mark.parametrize("pain", _CONFIG, ids=lambda pain: pain.name)
def test_config(pain: test_pains_of_config.Pain, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    pain.make(store)
    _mend_and_look(store, pain.code)


@pytest.mark.parametrize("name", ["crc-flip-old", "crc-flip-last", "gap", "short-middle", "torn-zero-clean", "crash"])
def test_goldens(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    findings, _ = checked(store)
    worst = next(finding for finding in findings if finding.severity.is_alarm)
    _mend_and_look(store, worst.code)


def test_what_stale_messages_leave(golden_store: GoldenStore) -> None:
    """The cut takes the old messages out of the log, and no good one with them."""
    store = golden_store("clean")
    end, good = test_old_messages.with_old_messages_behind(store)
    _mend_and_look(store, "RMQ-LOG-013")
    _, summary = checked(store)
    assert (summary.log_end, summary.messages) == (end, good)
