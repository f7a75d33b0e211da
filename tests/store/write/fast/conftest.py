"""What the tests of the compiled fast path need: a Python that it is made for."""

from __future__ import annotations

import pytest

from tests.store.same_files import require_lock_of_python


@pytest.fixture(autouse=True)
def _usual_python() -> None:
    require_lock_of_python()
