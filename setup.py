"""What pyproject.toml cannot say: the one part that is compiled at install, and the links of a source distribution.

The part is the fast path of puts. Without a C compiler, and for a Python without GIL, it is left out: everything works,
puts are slower.
"""

import os
import shutil
import sysconfig
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
SOURCES = ("store/write/fast/fast_path.c", "formats/layouts.h")
FLOORS = ("formats", "store", "network", "pipeline")
HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")

# so that code of another source is not taken (store/write/fast/extension.py)
source = format(zlib.crc32(b"".join((ROOT / name).read_bytes() for name in SOURCES)), "08x")
fast_path = Extension(
    "rmqctl.store.write.fast.fast_path",
    [SOURCES[0]],
    include_dirs=["."],
    depends=[SOURCES[1]],
    define_macros=[("SOURCE", f'"{source}"')],
    py_limited_api=True,
    optional=True,
)


class WithLinks(sdist):
    """A source distribution is like a clone: setuptools follows the links to the floors, which go back in here."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """As setuptools makes it, each floor there once."""
        super().make_release_tree(base_dir, files)
        for floor in FLOORS:
            link = Path(base_dir, "rmqctl", floor)
            shutil.rmtree(link)
            os.symlink(f"../{floor}", link)


setup(
    cmdclass={"sdist": WithLinks},
    ext_modules=[fast_path] if HAS_GIL else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_GIL else {},
)
