"""The proof of errors of the disk, and that it can fail."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rmqctl.formats.errors import RmqctlError
from tests.proof.disk_errors import Fault, faulty, may_mount
from tests.proof.mutants import MUTANTS
from tests.proof.proving import assert_proved
from tests.proof.stores import bases
from tests.quick import sample
from tests.store.journal.failing import SHORT


@pytest.mark.timeout(1800)
def test_errors_of_the_disk_are_told_and_lose_nothing(tmp_path: Path) -> None:
    assert_proved("disk-errors", tmp_path)


def test_a_file_system_can_be_mounted(tmp_path: Path) -> None:
    """Where none can be, the cases of a full one are cases of a limit: nobody is to take them for tried."""
    if not may_mount(tmp_path):
        pytest.skip("a small file system can be mounted by root only: no really full one was tried")


_CAUGHT = {
    "short writes": ("recover", Fault("write", SHORT, False, 0), range(8, 13)),
    "silent writes": ("append-sync", Fault("write", errno.EIO, False, 0), range(12, 16)),
    "absent by error": ("undo-interrupted", Fault("look", errno.EIO, False, 0), range(4, 12)),
    "queue seems empty": ("append-sync", Fault("look", errno.EIO, False, 0), range(18, 26)),
    "lock stays": ("append-sync", Fault("look", errno.EIO, True, 0), range(60, 68)),
}


@pytest.mark.parametrize("mutant", sample(_CAUGHT, ["queue seems empty", "lock stays"]))
def test_the_proof_can_fail(mutant: str, tmp_path: Path) -> None:
    """With a mutant that costs somebody data a case fails, which passes without it."""
    name, fault, calls = _CAUGHT[mutant]
    with bases() as stores:
        for at in calls:
            places = [tmp_path / f"{at}", tmp_path / f"{at}-sound"]
            for place in places:
                place.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                MUTANTS[mutant](patch.setattr)
                try:
                    faulty(stores, name, fault._replace(at=at), "undo", places[0])
                    continue
                except (AssertionError, RmqctlError):
                    patch.undo()
            faulty(stores, name, fault._replace(at=at), "undo", places[1])
            return
    pytest.fail(f"the mutant {mutant!r} was not caught")
