"""The engines that must come to the same bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.pipeline.engine import Engine, LocalEngine, SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: list[Any] = ["inline", "processes", pytest.param("spark", marks=pytest.mark.jvm)]
"""Parameters for engine_named."""
OTHER_ENGINES = ENGINES[1:]
"""Those that must do what "inline" does."""
ENGINES_BEYOND_ONE = [pytest.param("processes", marks=pytest.mark.thorough), ENGINES[2]]
"""The same, for a job that is run as one is whose engines the quick run compares."""


def engine_named(name: str, request: pytest.FixtureRequest) -> Engine:
    """An engine by its name in ENGINES; the session is only started for the one that needs it."""
    if name == "spark":
        session: SparkSession = request.getfixturevalue("spark")
        return SparkEngine(session)
    return LocalEngine(1 if name == "inline" else 2, alone_for=0)


def bytes_below(folder: Path) -> dict[str, str]:
    """Everything below a folder: relative path -> digest of the bytes, or "directory"."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in sorted(folder.rglob("*"))
    }
