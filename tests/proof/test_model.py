"""A store driven at random holds what a list in memory holds; and that this can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.report import RecoverReport
from tests.proof.proving import assert_proved, prove


def test_the_store_holds_what_the_list_holds(tmp_path: Path) -> None:
    assert_proved("model", tmp_path)


@pytest.mark.thorough
def test_it_fails_where_a_recovery_loses_the_last_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MessageStore.recover

    def losing(store: MessageStore) -> RecoverReport:
        report = whole(store)
        last = list(store.last_messages(1))
        return store.truncate(last[0].physical_offset) if last else report

    monkeypatch.setattr(MessageStore, "recover", losing)
    outcome = prove("model", 20, 1, tmp_path)
    assert len(outcome.failures) == 1
    assert "state.killed()" in outcome.failures[0] or "state.power_cut(" in outcome.failures[0]
    assert "python -m tests.proof model --seed 1 --count 20 --only 'examples-0'" in outcome.failures[0]
