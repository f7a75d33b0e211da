"""After which time a broker stores a message that waits once more (timerRollWindowSlot)."""

from __future__ import annotations

import numpy as np
import pytest

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.recover.timer import WAITING, NewTimer
from rmqctl.store.timer.wheel import MAGIC_DEFAULT, MAGIC_ROLL, roll_window_ms

_MOST = (7 * 24 * 3600 - 60) * 1000


@pytest.mark.parametrize(
    ("slots", "expected"), [(172_800, 172_800_000), (2, 2000), (1, _MOST), (0, _MOST), (604_741, _MOST)]
)
def test_it_is_within_the_wheel(slots: int, expected: int) -> None:
    assert roll_window_ms(StoreConfig(timer_roll_window_slot=slots)) == expected


def test_what_waits_for_longer_gets_the_unit_of_one_that_is_stored_once_more() -> None:
    waiting = np.array([(delay * 1000, 0, 1, 0) for delay in (9, 10, 13, 14)], WAITING)
    made = NewTimer(waiting, None, 0, 1 << 20, 10_000)
    units = made._units
    assert units["delay"].tolist() == [9000, 5000, 10_000, 10_000]
    assert units["magic"].tolist() == [MAGIC_DEFAULT, *[MAGIC_DEFAULT | MAGIC_ROLL] * 3]
