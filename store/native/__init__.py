"""Compiled code: each hot loop is one source that Cython compiles at install, or that runs as plain Python.

Both forms are imported by the same name: store/compiled.py finds the compiled one.

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
* What only compiled code calls is declared in the module's .pxd, with the attributes of a class, and has no decorators
  here; but where one is `inline`, its decorators stand here.
* A C function gives something, a `cython.int` at least: after one without a result Cython asks for the GIL each time.
"""

from __future__ import annotations


def is_compiled() -> bool:
    """Whether modules here run compiled in this process."""
    from rmqctl.store.native import crc

    return bool(crc.COMPILED)
