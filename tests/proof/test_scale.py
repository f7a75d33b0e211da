"""A store far larger than what is in it costs little to look at; and that this can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof import scale
from tests.proof.proving import assert_proved, prove


@pytest.mark.thorough
def test_looking_costs_what_there_is(tmp_path: Path) -> None:
    assert_proved("scale", tmp_path)


@pytest.mark.thorough
def test_it_fails_where_a_command_takes_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "_MOST_MEMORY", 1 << 20)
    outcome = prove("scale", 10, 1, tmp_path, most_failures=1)
    assert "memory" in outcome.failures[0]
