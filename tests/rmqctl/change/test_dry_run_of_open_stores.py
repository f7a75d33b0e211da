"""A dry run on a store that somebody has open says so: what it shows is not what a change would do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.main import main
from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import SMALL, message


@pytest.mark.parametrize("verb", [["recover"], ["truncate", "--at", "0"], ["repair"], ["rebuild"]])
def test_who_has_it_open_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        store.put(message())
        store.flush()
        main([*verb, "-s", str(root), "--dry-run", "--json"])
        assert f"process {os.getpid()} has the store open" in capsys.readouterr().err
    main([*verb, "-s", str(root), "--dry-run", "--json"])
    assert "has the store open" not in capsys.readouterr().err
