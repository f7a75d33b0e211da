"""The proof of kills, and that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.proving import assert_proved


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    assert_proved("kills", tmp_path)
