"""Kernels that nobody has to wait for are left to the process that compiles them: until then the plain form works."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numba

from rmqctl.store.compiled import compiling, tried
from rmqctl.store.compiled.notices import help_compiling, tell_notices
from rmqctl.store.compiled.tried import Kernels, loaded_once, tried_kernels
from rmqctl.store.write.bulk.bulk_kernels import BulkKernels, _is_right

MODULE = "rmqctl.store.write.bulk.kernel_bulk"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[str, bool]]]:
    """What the helper was asked, on a machine where nothing is kept yet."""
    found: list[tuple[str, bool]] = []
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    yield found
    help_compiling(None)
    tell_notices(None)


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_what_is_compiled_elsewhere(
    asked: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch, is_waited_for: bool
) -> None:
    said: list[str] = []
    is_at_work = True

    def helper(module: str, is_needed_here: bool) -> bool:
        asked.append((module, is_needed_here))
        return is_at_work

    @loaded_once
    def load() -> Kernels | None:
        return tried_kernels(MODULE, lambda kernels: _is_right(BulkKernels(*kernels)), is_waited_for=is_waited_for)

    tell_notices(said.append)
    help_compiling(helper)
    first = load()
    assert (first is not None) == is_waited_for
    assert load() is first
    assert asked == [(MODULE, is_waited_for)]
    is_at_work = False
    monkeypatch.setattr(tried, "LOOK_AGAIN", 0)
    if not is_waited_for:
        # the plain form was given out for half a second: by then nobody compiles them elsewhere any more
        wait = threading.Event()
        while load() is None:
            wait.wait(0.1)
        assert asked[1:] == [(MODULE, False), (MODULE, True)]
    found = load()
    assert found is not None
    assert _is_right(BulkKernels(*found))
    assert load() is found
    assert len(said) == 1
    assert said[0].startswith("compiling the fast path")


def test_a_listener_hears_of_its_own_thread_only() -> None:
    heard: list[str] = []
    with compiling.listening(lambda: heard.append("here")):
        other = threading.Thread(target=numba.njit(lambda: 1))
        other.start()
        other.join()
        assert heard == []
        function: Any = numba.njit(lambda: 2)
        function()
    assert heard == ["here"]


def test_ctrl_c_waits_until_kernels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would dispose of a module twice that was being loaded when an exception came."""
    loaded: list[str] = []

    def load(module: str, *_: object) -> Kernels:
        signal.raise_signal(signal.SIGINT)
        loaded.append(module)
        return ()

    monkeypatch.setattr(compiling, "load_kernels", load)
    with pytest.raises(KeyboardInterrupt):
        tried_kernels(MODULE, lambda _: True)
    assert loaded == [MODULE]
