"""The one loader of what has a compiled and a plain form: loads kernels, tries them, does without."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from rmqctl.store.compiled.available import is_left_to_others, say_compiling, why_plain
from rmqctl.store.compiled.notices import notice
from rmqctl.store.files.background import uninterrupted

Kernels = tuple[Callable[..., Any], ...]
_Loaded = TypeVar("_Loaded")

LOOK_AGAIN = 0.5
"""Seconds between two looks whether another process has compiled what is asked for."""

_loading = threading.RLock()
_postponed: list[str] = []


class NotKept(BaseException):
    """Kernels that nobody waits for are being compiled elsewhere. No Exception, which stands for kernels that do not
    work."""


def announcing(module: str, is_waited_for: bool) -> Callable[[], None]:
    """What is to be called before the kernels of a module are compiled. It raises NotKept if they need not be."""

    def announce() -> None:
        if not is_waited_for and is_left_to_others(module):
            raise NotKept
        say_compiling(module)

    return announce


def loaded_once(load: Callable[..., _Loaded]) -> Callable[..., _Loaded]:
    """`load`, called once for its arguments and for whether anything is to be compiled, which is asked every time: the
    environment may forbid it later, or allow it again. The plain form is given out only for a while where the kernels
    are being compiled elsewhere (`tried_kernels`): whoever works for long asks again."""
    known: dict[tuple[Any, ...], tuple[_Loaded, float | None]] = {}

    @functools.wraps(load)
    def asked(*arguments: Any) -> _Loaded:
        key = (why_plain() is None, *arguments)
        found = known.get(key)
        if found is None or (found[1] is not None and found[1] <= time.monotonic()):
            with _loading:
                before = len(_postponed)
                loaded = load(*arguments)
                is_for_now = len(_postponed) > before
                found = known[key] = loaded, time.monotonic() + LOOK_AGAIN if is_for_now else None
        return found[0]

    return asked


def tried_kernels(module: str, is_right: Callable[[Kernels], bool], *, is_waited_for: bool = True) -> Kernels | None:
    """The kernels that `make_kernels` of a module makes, once `is_right` has tried them on something small.

    None where nothing is compiled, and where these cannot be or are wrong, which is told (`notices`): the plain form
    does the same work. None for now if they are not waited for and another process compiles them. Loads numba where it
    is installed.
    """
    if why_plain() is not None:
        return None
    # an exception between two steps of LLVM's would make it dispose of a module twice, and end the process by that
    with _loading, uninterrupted():
        try:
            from rmqctl.store.compiled import compiling

            return compiling.load_kernels(module, is_right, announcing(module, is_waited_for))
        except NotKept:
            _postponed.append(module)
        except Exception as error:  # noqa: BLE001 - numba and LLVM raise anything
            detail = str(error).partition("\n")[0][:200]
            notice(f"some work is done slowly because kernels do not work here ({type(error).__name__}: {detail})")
        return None
