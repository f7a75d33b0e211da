"""A golden store, asked in this process by all tests of a module; and what answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqctl.pipeline.sql.duckdb import EmbeddedSql, embedded_sql
from tests.opened import store_path


@pytest.fixture(scope="package", autouse=True)
def _what_answers() -> None:
    pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def clean() -> Iterator[EmbeddedSql]:
    """The store `clean`, in small splits, so that conditions leave some of them out."""
    with embedded_sql(str(store_path("clean")), {"split_size": "65536", "clock_tolerance": "0s"}) as views:
        yield views
