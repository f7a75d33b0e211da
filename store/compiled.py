"""Find the compiled form of a module of store/native, by the number of the sources that it was compiled from.

The finder is not in that package: Python gives a thread the submodules of a package that another thread still loads. A
finder that the package brings would miss them, and plain modules would meet compiled ones that need them compiled. Nor
may it import anything while it is asked, when Python holds the lock of all imports.
"""

from __future__ import annotations

import os
import sys
import zlib
from functools import cached_property
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType

PLAIN = "RMQCTL_PLAIN"
"""Environment variable that takes the plain form of everything: set to 1."""
COMPILED_IN = "RMQCTL_NATIVE"
"""Environment variable that names another folder with compiled files: those with sanitizers (`make sanitize`)."""


def source_number(folder: Path) -> str:
    """Return a number of all sources in `folder`, which setup.py puts into the names of what it compiles."""
    number = 0
    for path in sorted((*folder.glob("*.py"), *folder.glob("*.pxd"))):
        number = zlib.crc32(path.name.encode() + path.read_bytes(), number)
    return format(number, "08x")


class CompiledFinder(FileFinder):
    """Finds modules in the folder store/native: the compiled form that was made of these sources, else the plain one.
    What it needs is read when it is first asked: many commands need nothing compiled."""

    @cached_property
    def number(self) -> str:
        """The number of the sources; "" where the plain form is wanted."""
        return "" if os.environ.get(PLAIN) == "1" else source_number(Path(self.path))

    @cached_property
    def _folder(self) -> str:
        return os.environ.get(COMPILED_IN) or self.path

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(os.listdir(self._folder))

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """As importlib asks; None where there is neither form."""
        module = fullname.rpartition(".")[2]
        for suffix in EXTENSION_SUFFIXES if self.number else ():
            file = f"{module}-{self.number}{suffix}"
            if file in self._files:
                place = os.path.join(self._folder, file)
                spec = ModuleSpec(fullname, ExtensionFileLoader(fullname, place), origin=place)
                spec.has_location = True
                return spec
        return super().find_spec(fullname, target)


finder = CompiledFinder(os.path.join(os.path.dirname(__file__), "native"), (SourceFileLoader, SOURCE_SUFFIXES))
"""Python asks it for modules in that folder, and for no others."""
sys.path_importer_cache[finder.path] = finder
