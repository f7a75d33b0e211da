"""The one part of rmqctl that is compiled at install: the fast path of puts. Everything else is in pyproject.toml.

Without a C compiler, and for a Python without GIL, it is left out: everything works, puts are slower.
"""

import sysconfig
import zlib
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
SOURCES = ("store/write/fast/fast_path.c", "formats/layouts.h")
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

setup(
    ext_modules=[fast_path] if HAS_GIL else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_GIL else {},
)
