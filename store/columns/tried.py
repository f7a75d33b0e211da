"""Loads further kernels than the walk's, tries them, and does without where they cannot be compiled or are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from store.columns.engine import say_compiling

if TYPE_CHECKING:
    from store.columns.native import Native

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


def tried_native(load: Callable[[int], Native], is_right: Callable[[Native], bool]) -> Native | None:
    """The same for a kernel that takes Python objects; None where this Python is another one than it is made for.

    `load` gets `compiling.source_stamp()`.
    """
    from store.columns import compiling, native

    if not native.is_possible():
        return None
    try:
        with compiling.listening(say_compiling):
            kernel = load(compiling.source_stamp())
        return kernel if is_right(kernel) else None
    except Exception:  # noqa: BLE001 - numba and LLVM raise anything; the plain form does the same work
        return None
