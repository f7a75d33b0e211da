"""Errors: stable codes, and a text that names the place."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats import compression, errors
from rmqctl.formats.errors import CorruptError, UsageError


def test_codes_are_stable() -> None:
    expected = {
        "UsageError": "RMQ-E-002",
        "NotAStoreError": "RMQ-E-003",
        "UnreadableError": "RMQ-E-004",
        "CorruptError": "RMQ-E-005",
        "NotFoundError": "RMQ-E-006",
        "UnsupportedError": "RMQ-E-007",
        "StoreInUseError": "RMQ-E-008",
        "RefusedError": "RMQ-E-009",
        "WriteFailedError": "RMQ-E-010",
    }
    assert {name: getattr(errors, name).code for name in expected} == expected
    assert compression.PlainSizeExceededError.code == "RMQ-E-011"


def test_the_text_names_the_place() -> None:
    assert str(UsageError("wrong")) == "wrong"
    assert str(CorruptError("bad", file=Path("/store/a"))) == "/store/a: bad"
    assert str(CorruptError("bad", file="/store/a", physical_offset=0)) == "/store/a at offset 0: bad"
    assert str(CorruptError("bad", physical_offset=7)) == "at offset 7: bad"
    assert CorruptError("bad", hint="do this").hint == "do this"
