"""What the tests of `rmqctl sql` need: what answers it in this process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _what_answers() -> None:
    pytest.importorskip("duckdb")
