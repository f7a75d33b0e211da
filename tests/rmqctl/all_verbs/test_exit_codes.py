"""Every error class ends with a code of its own kind, and every code is explained."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqctl.formats.errors import CorruptError, RmqctlError
from rmqctl.output import outcome as exit_codes


def _descendants(cls: type[RmqctlError]) -> Iterator[type[RmqctlError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _descendants(child)


def _of_the_project() -> list[type[RmqctlError]]:
    return [cls for cls in _descendants(RmqctlError) if cls.__module__.split(".")[0] != "tests"]


def test_every_error_class_is_numbered_or_inherits_a_number() -> None:
    assert len(_of_the_project()) >= 9
    lost = [cls.__name__ for cls in _of_the_project() if exit_codes.exit_code_of(cls("x")) == exit_codes.BUG]
    assert lost == []


def test_the_codes_of_the_errors_are_stable_and_never_doubled() -> None:
    # who has none of its own is of its parent's kind for whoever reads codes
    codes = [cls.code for cls in _of_the_project() if "code" in vars(cls)]
    assert sorted(codes) == sorted(set(codes))


def test_every_exit_code_has_a_meaning() -> None:
    numbers = {
        value
        for name, value in vars(exit_codes).items()
        if name[0] != "_" and name.isupper() and isinstance(value, int)
    }
    assert numbers == set(exit_codes.MEANINGS)
    assert set(exit_codes.EXIT_CODES.values()) <= numbers


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("CorruptError", 7),
        ("NotFoundError", 1),
        ("UsageError", 2),
        ("NotAStoreError", 3),
        ("UnreadableError", 3),
        ("StoreInUseError", 4),
        ("RefusedError", 5),
        ("UnsupportedError", 5),
        ("WriteFailedError", 6),
    ],
)
def test_the_promised_numbers(name: str, code: int) -> None:
    assert {cls.__name__: number for cls, number in exit_codes.EXIT_CODES.items()}[name] == code


def test_a_subclass_inherits_the_code_and_the_root_is_a_bug() -> None:
    class TornTailError(CorruptError):
        code = "RMQ-TEST-1"

    assert exit_codes.exit_code_of(TornTailError("x")) == 7
    assert exit_codes.exit_code_of(RmqctlError("x")) == 70
