"""The proof of kills, and that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import RmqctlError
from tests.proof.kills import Killer, killed
from tests.proof.proving import assert_proved
from tests.proof.stores import bases
from tests.quick import sample


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    assert_proved("kills", tmp_path)


_CAUGHT = {
    "half files": ("offsets-set", True, range(28, 42)),
    "not kept": ("recover", False, range(49, 60)),
    "in memory": ("put-batch", False, range(8, 20)),
}


@pytest.mark.parametrize("mutant", sample(_CAUGHT, []))
def test_the_proof_can_fail(mutant: str, tmp_path: Path) -> None:
    """With a mutant that costs somebody data a case fails, which passes without it."""
    name, torn, changes = _CAUGHT[mutant]
    with bases() as stores, Killer(mutant) as killer, Killer() as sound:
        for at in changes:
            places = [tmp_path / f"{at}", tmp_path / f"{at}-sound"]
            for place in places:
                place.mkdir()
            try:
                killed(stores, killer, name, at, places[0], torn=torn, way="undo")
            except (AssertionError, RmqctlError):
                killed(stores, sound, name, at, places[1], torn=torn, way="undo")
                return
    pytest.fail(f"the mutant {mutant!r} was not caught")
