"""The one loader of what has a compiled and a plain form: loads kernels, tries them, does without."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rmqctl.store.compiled.available import say_compiling, why_plain
from rmqctl.store.compiled.notices import notice

Kernels = tuple[Callable[..., Any], ...]
_Loaded = TypeVar("_Loaded")

_loading = threading.RLock()


def loaded_once(load: Callable[..., _Loaded]) -> Callable[..., _Loaded]:
    """`load`, called once for its arguments and for whether anything is to be compiled, which is asked every time: the
    environment may forbid it later, or allow it again."""

    @functools.cache
    def loaded(_is_compiled: bool, *arguments: Any) -> _Loaded:
        return load(*arguments)

    @functools.wraps(load)
    def asked(*arguments: Any) -> _Loaded:
        return loaded(why_plain() is None, *arguments)

    return asked


def tried_kernels(module: str, is_right: Callable[[Kernels], bool]) -> Kernels | None:
    """The kernels that `make_kernels` of a module makes, once `is_right` has tried them on something small.

    None where nothing is compiled, and where these cannot be or are wrong, which is told (`notices`): the plain form
    does the same work. Loads numba where it is installed.
    """
    if why_plain() is not None:
        return None
    with _loading:
        try:
            from rmqctl.store.compiled import compiling

            return compiling.load_kernels(module, is_right, functools.partial(say_compiling, module))
        except Exception as error:  # noqa: BLE001 - numba and LLVM raise anything
            detail = str(error).partition("\n")[0][:200]
            notice(f"some work is done slowly because kernels do not work here ({type(error).__name__}: {detail})")
            return None
