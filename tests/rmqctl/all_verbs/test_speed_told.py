"""Bulk commands say on stderr, once, what makes them slower than they could be; short ones load nothing to find out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.goldens import golden
from tests.processes import run


@pytest.mark.parametrize("words", ["recover --dry-run", "rebuild --dry-run", "check", "info", "cat"])
def test_the_missing_compiler_is_named_once(words: str, tmp_path: Path) -> None:
    store = golden("clean", tmp_path)
    ended = run(
        [sys.executable, "-m", "rmqctl.start", *words.split(), "-s", str(store)],
        env={**os.environ, "RMQCTL_NO_NUMBA": "1"},
        check=True,
    )
    # what is small is read message by message: nothing is slower than it could be
    told = 0 if words in ("info", "cat") else 1
    assert ended.stderr.count("whole logs are read slowly because RMQCTL_NO_NUMBA=1 is set") == told
