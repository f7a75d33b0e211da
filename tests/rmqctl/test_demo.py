"""`make demo` where its writer fails: a message and an exit code, no traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmqctl import demo

FAILING = {
    "at once": "import sys; sys.exit(70)",
    "after some lines": "import sys; sys.stdin.buffer.read(100_000); sys.exit(70)",
    "after all lines": "import sys; sys.stdin.buffer.read(); sys.exit(70)",
}


@pytest.mark.parametrize("code", FAILING.values(), ids=FAILING)
def test_a_writer_that_fails_is_named(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_rmqctl", lambda *arguments: [sys.executable, "-c", code])
    monkeypatch.setattr(demo, "MESSAGES", 20_000)
    if code == FAILING["after all lines"]:
        monkeypatch.setattr(demo, "KILLED_AT", 2)
    with pytest.raises(SystemExit) as ended:
        demo._write_and_kill(tmp_path / "store", tmp_path / "broker.conf")
    assert ended.value.code == "the writer ended with exit code 70 before the demo could kill it"
