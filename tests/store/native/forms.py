"""Both forms of a module of store/native in one process."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType

import pytest

from rmqctl.store import native
from rmqctl.store.compiled import finder

_PACKAGE = native.__name__ + "."


@functools.cache
def plain_form(name: str) -> ModuleType:
    """The plain form of a module, with the plain forms of all that it imports, beside the compiled ones."""
    before = {one: module for one, module in sys.modules.items() if one.startswith(_PACKAGE)}
    number, finder.number = finder.number, ""
    try:
        for one in before:
            del sys.modules[one]
        return importlib.import_module(_PACKAGE + name)
    finally:
        finder.number = number
        for one in [one for one in sys.modules if one.startswith(_PACKAGE)]:
            del sys.modules[one]
        sys.modules.update(before)
        for one, module in before.items():
            setattr(native, one.removeprefix(_PACKAGE), module)


def compiled_form(name: str) -> ModuleType:
    """The compiled form; skips the test where nothing is compiled."""
    if not native.is_compiled():
        pytest.skip("store/native is not compiled here")
    return importlib.import_module(_PACKAGE + name)


def take_plain_form(patch: pytest.MonkeyPatch, name: str, user: ModuleType) -> None:
    """Have `user` call the plain form of all that it imported from a module."""
    compiled, plain = importlib.import_module(_PACKAGE + name), plain_form(name)
    taken = [one for one, value in vars(user).items() if callable(value) and getattr(compiled, one, None) is value]
    assert taken
    for one in taken:
        patch.setattr(user, one, getattr(plain, one))
