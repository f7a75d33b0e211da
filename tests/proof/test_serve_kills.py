"""Kills of a server, as many as CI tries; tests/network/test_killed.py is what the quick run has of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.proving import assert_proved


@pytest.mark.thorough
def test_serve_kills(tmp_path: Path) -> None:
    assert_proved("serve-kills", tmp_path)
