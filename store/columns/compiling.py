"""How kernels are compiled and kept. Importing this module imports numba: only the engine does, when it is needed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

# modules whose constants, or places of fields, are compiled into the kernels
_CONSTANTS = (
    *(f"store/columns/{name}.py" for name in ("batch", "compiling", "frame_columns", "native", "state", "topics")),
    *(f"store/write/{name}.py" for name in ("bulk_rows", "known", "put_context", "result")),
    "formats/framing.py",
    "formats/layouts.py",
)

_Function = TypeVar("_Function", bound=Callable[..., Any])


# Kernels allocate nothing, so that counting references to their arrays is only cost: it halves their speed.
_compile = functools.partial(cast(Any, numba.njit), nogil=True, _nrt=False)


def inner(function: _Function) -> _Function:
    """A function that kernels call."""
    return cast(_Function, _compile()(function))


def kernel(function: _Function) -> _Function:
    """A function that Python calls, which lets other threads run meanwhile.

    The machine code is kept beside the source or in the user's cache directory, as numba does it; where neither can
    be written it is compiled again in every process.
    """
    return _kept(function, nogil=True)


def short_kernel(function: _Function) -> _Function:
    """The same for one that takes some us: it keeps the GIL, because getting that back can take longer."""
    return _kept(function, nogil=False)


def _kept(function: _Function, *, nogil: bool) -> _Function:
    try:
        return cast(_Function, _compile(nogil=nogil, cache=True)(function))
    except RuntimeError:  # numba: no locator available
        return inner(function)


def c_function(function: Callable[..., Any], signature: Any) -> Any:
    """`function` as a C function with an `address`, compiled at once and kept like a kernel."""
    try:
        return cast(Any, numba.cfunc(signature, cache=True)(function))
    except Exception:  # noqa: BLE001 - whatever is wrong with the cache, it works without
        return cast(Any, numba.cfunc(signature)(function))


def uncached(function: _Function) -> _Function:
    """The same kernel without its cache: for a cache that turns out to be unreadable or on a full disk."""
    plain: _Function = cast(Any, function).py_func
    return inner(plain)


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a kernel is kept for the next process."""
    return bool(cast(Any, function).stats.cache_path)


def source_stamp() -> int:
    """A number that changes with any source of a kernel.

    numba recompiles when the file of the outer function changes, not when a function that it calls does. A kernel
    that closes over this number is compiled anew in both cases.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    root = Path(__file__).parents[2]
    for path in [*sorted((root / "store").rglob("kernel_*.py")), *map(root.joinpath, _CONSTANTS)]:
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:7], "big")


class CompilationListener(event.Listener):
    """Calls `announce` when something is about to be compiled, the first time only."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce: Callable[[], None] | None = announce

    def on_start(self, event: object) -> None:
        announce, self._announce = self._announce, None
        if announce is not None:
            announce()

    def on_end(self, event: object) -> None:
        pass


def listening(announce: Callable[[], None]) -> Any:
    """A context in which `announce` is called before the first compilation; code from the cache needs none."""
    return event.install_listener("numba:compile", CompilationListener(announce))
