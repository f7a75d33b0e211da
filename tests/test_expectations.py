"""The expectations of each golden store hold: what is seen in it, and what recover and repair make of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import expectations
from tests.quick import goldens_of


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", expectations.ZONE)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("name", goldens_of(expectations.NAMES))
def test_a_golden_is_seen_and_changed_as_expected(name: str, tmp_path: Path) -> None:
    assert expectations.observed(name, tmp_path) == expectations.expected(name)


def test_each_golden_has_expectations_and_no_other_store_has() -> None:
    assert {path.stem for path in expectations.FOLDER.iterdir()} == set(expectations.NAMES)
