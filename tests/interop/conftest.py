"""The fixture that skips, with the reason, where the real RocketMQ cannot be run."""

from __future__ import annotations

import pytest

from tests.interop import harness


@pytest.fixture(scope="session")
def rocketmq() -> None:
    """Both RocketMQ versions are ready; else the test is skipped (in CI a failing fetch is an error)."""
    reason = harness.available()
    if reason is not None:
        pytest.skip(reason)
