"""append that is told to end: it says how far it came."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import processes
from tests.rmqctl.change.writers import appending


def test_sigterm_says_how_many_messages_are_stored(tmp_path: Path) -> None:
    store, config = tmp_path / "store", tmp_path / "small.conf"
    config.write_text("mappedFileSizeCommitLog=65536\n")
    said = tmp_path / "said"
    with said.open("wb") as problems, appending(store, config, stderr=problems) as writer:
        writer.terminate()
        assert writer.wait() == 143
    *_, told, last = said.read_text().splitlines()
    assert last == "rmqctl: terminated"
    stored = int(told.removeprefix("interrupted: ").removesuffix(" messages are stored"))
    assert stored > 500
    listed = processes.run([sys.executable, "-m", "rmqctl", "cat", "-s", store, "--json"], check=True).stdout
    assert listed.count("\n") == stored
    assert not (store / "abort").exists()  # closed as after Ctrl-C
