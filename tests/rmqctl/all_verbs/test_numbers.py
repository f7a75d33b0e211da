"""Numbers on the command line: what no field of a store can hold is a usage error of every verb."""

from __future__ import annotations

from typing import Any

import click
import pytest

from rmqctl.flags.types import LARGEST_LONG, SECONDS, SignedNumber, WholeNumber
from tests.opened import store_path
from tests.rmqctl.all_verbs.test_one_meaning import commands
from tests.rmqctl.looking import run


def _number_options() -> list[tuple[str, str, Any]]:
    return [
        (name, option.opts[0], option.type)
        for name, command in commands()
        for option in command.params
        if option.type.name.startswith(("integer", "float"))
    ]


def _is_bounded(kind: Any) -> bool:
    if isinstance(kind, WholeNumber | SignedNumber):
        return kind.largest <= LARGEST_LONG
    return kind is SECONDS or (isinstance(kind, click.IntRange) and None not in (kind.min, kind.max))


def test_every_number_has_bounds_that_a_long_can_hold() -> None:
    found = _number_options()
    assert len(found) > 25
    assert [(name, option) for name, option, kind in found if not _is_bounded(kind)] == []


@pytest.mark.parametrize("limit", [LARGEST_LONG, -LARGEST_LONG])
def test_cat_takes_the_largest_limit(limit: int) -> None:
    result = run("cat", "-s", str(store_path("clean")), "-n", str(limit), "--json")
    assert result.code == 0
    assert result.out.count("\n") > 1000


@pytest.mark.parametrize("limit", [LARGEST_LONG + 1, -LARGEST_LONG - 1])
def test_cat_refuses_a_larger_limit(limit: int) -> None:
    result = run("cat", "-s", str(store_path("clean")), "-n", str(limit))
    assert result.code == 2
    assert f"{limit} is not in the range" in result.err


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e400", "-1"])
def test_a_mirror_waits_for_a_number_of_seconds(seconds: str) -> None:
    result = run("mirror", "127.0.0.1:1", "/nowhere/mirror", "--give-up", seconds)
    assert result.code == 2
    assert "--give-up" in result.err
