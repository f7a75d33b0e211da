"""A server that is killed once or a few times over the same store; `serve-kills` of tests/proof does it at length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.network.killing import kill_in_mid_load
from tests.network.pop_killing import Popping, kill_while_popping
from tests.quick import sample


@pytest.mark.parametrize("kills", sample([1, 3], [1]))
def test_killed_in_the_middle_of_work(kills: int, tmp_path: Path) -> None:
    sent = kill_in_mid_load(tmp_path, kills, random.Random(kills))
    assert sent["Plain"]


@pytest.mark.parametrize("kills", sample([1, 4], [1]))
def test_killed_while_messages_are_popped(kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    assert kill_while_popping(tmp_path, kills, Popping(chance), chance) > 0
