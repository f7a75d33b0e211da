"""Compiled code: each hot loop is one source that Cython compiles at install, or that runs as plain Python.

Both forms are imported by the same name. The file of a compiled one carries the number of all sources here, so that one
that was compiled from other sources is not found.

How a module here is written (crc.py is an example; `make native` compiles):

* It begins with `from rmqctl.store.native import uncompiled as cython`, then `if cython.compiled: import cython`, which
  only Cython reads, with the cimports of views and memory; then `if not cython.compiled:` the same names from
  `uncompiled` and `memory`.
* Bytes come as `Bytes`, arrays as `Ints`, `Longs` and so on. A function that Python calls makes memoryviews of them in
  the plain form (`views`): an element of a NumPy array would be NumPy's, and overflow.
  `memory` reads big-endian integers out of them and compares every place with the length.
* An argument or local without a type is a Python object: slow, and refused where other threads may run.
* A function that indexes keeps Cython's way of raising: `exceptval(check=False)` would swallow the error.
* A plain integer has no end: where a value may leave its field, `i32`, `u32` and `i64` say how it wraps.
* A constant of a module is a Python object, like a literal above 2**31, unless the module's .pxd says what it is
  (`cdef int NAME, OTHER`) or the module does (`NAME = cython.declare(cython.uint, 0xEDB88320)`). Python does not see
  such a name in the compiled form.
* A C function gives something, a `cython.int` at least: after one without a result Cython asks for the GIL each time.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PLAIN = "RMQCTL_PLAIN"
"""Environment variable that takes the plain form of everything: set to 1."""
COMPILED_IN = "RMQCTL_NATIVE"
"""Environment variable that names another folder where compiled files lie: those with sanitizers (`make sanitize`)."""

_HERE = Path(__file__).parent


def source_number(folder: Path) -> str:
    """A number of all sources in `folder`, which setup.py puts into the names of what it compiles."""
    number = 0
    for path in sorted((*folder.glob("*.py"), *folder.glob("*.pxd"))):
        number = zlib.crc32(path.name.encode() + path.read_bytes(), number)
    return format(number, "08x")


class _Finder:
    """Finds the compiled form of a module that was made of these sources."""

    def __init__(self) -> None:
        self.number = "" if os.environ.get(PLAIN) == "1" else source_number(_HERE)
        self._compiled = os.environ.get(COMPILED_IN) or str(_HERE)
        self._files = frozenset(os.listdir(self._compiled)) if self.number else frozenset()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks; None for what others find: modules elsewhere, and the plain form."""
        package, _, module = name.rpartition(".")
        if package != __name__:
            return None
        if self.number:
            for suffix in EXTENSION_SUFFIXES:
                file = f"{module}-{self.number}{suffix}"
                if file in self._files:
                    place = os.path.join(self._compiled, file)
                    return spec_from_file_location(name, place, loader=ExtensionFileLoader(name, place))
        return None


finder = _Finder()
sys.meta_path.insert(0, finder)


def is_compiled() -> bool:
    """Whether modules here run compiled in this process."""
    from rmqctl.store.native import crc

    return bool(crc.COMPILED)
