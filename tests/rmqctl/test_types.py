"""Values of a command line that are not words."""

from __future__ import annotations

import click
import pytest

from rmqctl.flags.types import SECONDS


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.25", 0.25), ("5s", 5.0), ("2m30s", 150.0), ("0", 0.0)])
def test_seconds_are_a_number_or_a_span(text: str, seconds: float) -> None:
    assert SECONDS.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e400", "5x", "s", ""])
def test_other_texts_are_no_seconds(text: str) -> None:
    with pytest.raises(click.UsageError):
        SECONDS.convert(text, None, None)
