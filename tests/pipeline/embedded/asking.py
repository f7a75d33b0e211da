"""Asks a store in this process."""

from __future__ import annotations

from typing import Any

from rmqctl.pipeline.sql.duckdb import EmbeddedSql


def rows_of(views: EmbeddedSql, statement: str) -> list[tuple[Any, ...]]:
    """The rows of an answer."""
    table = views.answer(statement)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
