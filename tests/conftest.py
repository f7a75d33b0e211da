"""Fixtures shared by all tests: private copies of golden stores."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from pipeline.class_archive import SWITCH
from tests import goldens
from tests.goldens import GoldenStore


def pytest_configure() -> None:
    """A shell that starts us in the background ignores Ctrl-C for us; the tests of Ctrl-C need it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # the second session of all would take longer than others, and say why
    os.environ.setdefault(SWITCH, "0")


@pytest.fixture(scope="session", autouse=True)
def golden_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Base stores are unpacked once per session, below pytest's own temporary folder."""
    goldens.use_cache(tmp_path_factory.mktemp("goldens"))


@pytest.fixture
def golden_store(tmp_path: Path) -> GoldenStore:
    """Factory of private copies, each in a folder of its own, so that a broker.conf has room beside the store."""
    counter = itertools.count(1)
    return lambda name: goldens.golden(name, tmp_path / f"golden-{next(counter)}")
