"""Loads further kernels than the walk's, tries them, and does without where they cannot be compiled or are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from store.columns.engine import say_compiling

Kernels = tuple[Callable[..., Any], ...]


def tried_kernels(load: Callable[[], Kernels], is_right: Callable[[Kernels], bool]) -> Kernels | None:
    """The kernels that `load` imports, once `is_right` has tried them on something small; else None.

    Their cache may be damaged or on a full disk: then they are compiled again without it. Imports numba: ask only
    where the engine has something compiled.
    """

    def works(kernels: Kernels) -> bool:
        try:
            return is_right(kernels)
        except Exception:  # noqa: BLE001 - a damaged cache raises anything
            return False

    try:
        from store.columns import compiling

        with compiling.listening(say_compiling):
            kept = load()
            return next(filter(works, (kept, tuple(map(compiling.uncached, kept)))), None)
    except Exception:  # noqa: BLE001 - numba and LLVM raise anything; the plain form does the same work
        return None
