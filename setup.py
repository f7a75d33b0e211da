"""What pyproject.toml cannot say: the parts that are compiled at install, and the links of a source distribution.

The parts are the fast path of puts and the checks of frames that a broker gives. Without a C compiler, and for a Python
without GIL, they are left out: everything works, more slowly.
"""

import os
import shutil
import sysconfig
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
HEADERS = ("formats/layouts.h", "store/compiled/crc32.h")
FLOORS = ("formats", "store", "network", "pipeline")
HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")


def compiled(name: str) -> Extension:
    """The extension `rmqctl.NAME`; its number is that of store/compiled/extensions.py."""
    sources = (f"{name.replace('.', '/')}.c", *HEADERS)
    # so that code of another source is not taken
    number = format(zlib.crc32(b"".join((ROOT / one).read_bytes() for one in sources)), "08x")
    return Extension(
        f"rmqctl.{name}",
        [sources[0]],
        include_dirs=["."],
        depends=list(HEADERS),
        define_macros=[("SOURCE", f'"{number}"')],
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
    ext_modules=[*map(compiled, ("store.write.fast.fast_path", "store.read.frame_checks"))] if HAS_GIL else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_GIL else {},
)
