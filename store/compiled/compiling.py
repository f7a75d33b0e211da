"""How kernels are compiled and kept. Importing this module imports numba: only the engine does, when it is needed."""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from rmqctl.store.files.reading import is_file

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ROOT = Path(__file__).parents[3]


_Kernels = tuple[Callable[..., Any], ...]

# Kernels allocate nothing, so that counting references to their arrays is only cost: it halves their speed. Nobody
# calls them as C functions: what lets others do so would be a tenth of the work of compiling.
_compile = functools.partial(cast(Any, numba.njit), _nrt=False, no_cfunc_wrapper=True)


def inner(function: _Function) -> _Function:
    """A function that kernels call, and Python cannot."""
    return cast(_Function, _compile(no_cpython_wrapper=True)(function))


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
        return cast(_Function, _compile(nogil=nogil)(function))


def _uncached(function: _Function) -> _Function:
    plain: _Function = cast(Any, function).py_func
    return cast(_Function, _compile(nogil=True)(plain))


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a kernel is kept for the next process."""
    return bool(cast(Any, function).stats.cache_path)


def load_kernels(module: str, is_right: Callable[[_Kernels], bool], announce: Callable[[], None]) -> _Kernels:
    """What `make_kernels` of a kernel module makes, once `is_right` has tried it on something small.

    The cache may be damaged or on a full disk: then they are compiled again without it. `announce` is called before
    anything is compiled. Raises whatever numba and LLVM raise, and AssertionError for kernels that are wrong.
    """
    with listening(announce):
        kernels: _Kernels = import_module(module).make_kernels(source_stamp(module))
        if not _works(kernels, is_right):
            kernels = tuple(map(_uncached, kernels))
            if not is_right(kernels):
                raise AssertionError(f"the kernels of {module} give wrong results")
        return kernels


def _works(kernels: _Kernels, is_right: Callable[[_Kernels], bool]) -> bool:
    try:
        return is_right(kernels)
    except Exception:  # noqa: BLE001 - a damaged cache raises anything
        return False


def source_stamp(module: str) -> int:
    """A number that changes with any source that a kernel module is compiled from: its own and that of everything of
    ours that it imports, because constants are compiled in.

    numba recompiles when the file of the outer function changes, not when a function that it calls does. A kernel
    that closes over this number is compiled anew in both cases.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for name in sorted(imported_by(module)):
        digest.update(_source(name) or b"")
    return int.from_bytes(digest.digest()[:7], "big")


def imported_by(module: str) -> set[str]:
    """A module of ours, and all that it imports when it is imported, from module to module."""
    found: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name not in found and _source(name) is not None:
            found.add(name)
            left += _imports(name)
    return found


# at the beginning of a line: what is imported inside of a function is no constant of a kernel
_IMPORT = re.compile(rb"^from ([\w.]+) import (\([^)]*\)|[^\n]*)|^import ([\w.]+)", re.MULTILINE)
# a module of formats/ may have names that it imports when they are asked for
_ANY_IMPORT = re.compile(_IMPORT.pattern.replace(b"^", rb"^\s*"), re.MULTILINE)


def _imports(module: str) -> list[str]:
    """Names that `module` imports, some of which are modules."""
    names: list[str] = []
    pattern = _ANY_IMPORT if module.startswith("rmqctl.formats.") else _IMPORT
    for home, listed, whole in pattern.findall(_source(module) or b""):
        name = (home or whole).decode("ascii")
        names += [name, *(f"{name}.{one.decode('ascii')}" for one in re.findall(rb"\w+", listed))]
    return names


@functools.cache
def _source(module: str) -> bytes | None:
    """The source of a module of ours; None for anything else."""
    if module.partition(".")[0] != "rmqctl":
        return None
    path = _ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if is_file(candidate):
            return candidate.read_bytes()
    return None


class CompilationListener(event.Listener):
    """Calls `announce` when something is about to be compiled in this thread, the first time only."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce: Callable[[], None] | None = announce
        self._thread = threading.get_ident()

    def on_start(self, event: object) -> None:
        if threading.get_ident() != self._thread:  # numba tells every listener of every thread
            return
        announce, self._announce = self._announce, None
        if announce is not None:
            announce()

    def on_end(self, event: object) -> None:
        pass


def listening(announce: Callable[[], None]) -> Any:
    """A context in which `announce` is called before the first compilation; code from the cache needs none."""
    return event.install_listener("numba:compile", CompilationListener(announce))
