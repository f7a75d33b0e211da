"""Work without collections: only for its time, also when it fails, and within itself."""

from __future__ import annotations

import gc

import pytest

from rmqctl.pipeline.engine import without_collections


def test_collections_are_off_for_the_time_being() -> None:
    assert gc.isenabled()
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_switches_them_on_again() -> None:
    with pytest.raises(ZeroDivisionError), without_collections():
        _ = 1 // 0
    assert gc.isenabled()


def test_who_had_them_off_keeps_them_off() -> None:
    gc.disable()
    try:
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
