"""The proof of errors of the disk, and that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.proving import assert_proved


@pytest.mark.timeout(1800)
def test_errors_of_the_disk_are_told_and_lose_nothing(tmp_path: Path) -> None:
    assert_proved("disk_errors", tmp_path)
