"""Random stores, shared with real brokers in turns and then damaged, as many as CI tries (tests/proof/real_broker)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.proving import assert_proved

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]


def test_ours_and_the_brokers_see_the_same(tmp_path: Path) -> None:
    assert_proved("real-broker", tmp_path)
