"""What pyproject.toml cannot say: the modules that are compiled at install, and where packages are.

Those of store/native are compiled: by the system's C compiler, else by that of the package ziglang, which is fetched
for the build alone. Where neither is to be had they are left out: the same sources run as plain Python, more slowly.
RMQCTL_BUILD chooses: `plain`, or zig's name of a machine (aarch64-linux-gnu.2.17), or `sanitize`.
"""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FLOORS = ("formats", "store", "network", "pipeline")
HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
BUILD = os.environ.get("RMQCTL_BUILD", "")
NATIVE = "store/native"
NOT_COMPILED = {"__init__", "memory", "tables", "uncompiled"}
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "cdivision": False,
    "initializedcheck": False,
    "auto_pickle": False,
    # what they propose is to go without bounds checks
    "show_performance_hints": False,
    "freethreading_compatible": True,
}
# who sets CFLAGS says how far to optimize; -w: warnings about generated C help nobody who installs
FLAGS = [*([] if os.environ.get("CFLAGS") else ["-O3"]), "-g0", "-fwrapv", "-fno-strict-aliasing", "-w"]
SANITIZE = [
    "-O1",
    "-g1",
    "-fno-wrapv",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
]


def has_cc() -> bool:
    """Whether the C compiler that this Python wants is here."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return bool(command) and shutil.which(command[0]) is not None


def wants_zig() -> bool:
    """Whether zig compiles: for another machine, or where there is no compiler."""
    if BUILD in ("plain", "sanitize"):
        return False
    machine = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    return bool(BUILD) or (machine and not has_cc())


def source_number() -> str:
    """What store/native finds its compiled files by; it imports nothing of ours."""
    spec = importlib.util.spec_from_file_location("compiled", ROOT / "store/compiled.py")
    assert spec is not None
    assert spec.loader is not None
    compiled = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiled)
    return str(compiled.source_number(ROOT / NATIVE))


class Fresh(build_py):
    """A wheel takes all that lies in `build_lib`, what other sources left there too."""

    def run(self) -> None:
        """Begin with nothing."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class Compiled(build_ext):
    """Compiled files carry the number of their sources; those of other sources go."""

    def get_ext_filename(self, fullname: str) -> str:
        """Where a module's compiled file comes to lie."""
        module = fullname.rpartition(".")[2]
        # setuptools asks by the whole name and by its last part, and keeps both in ext_map
        if NATIVE.replace("/", ".") not in self.ext_map[fullname].name:
            return str(super().get_ext_filename(fullname))
        plain = Path(super().get_ext_filename(fullname))
        return str(plain.with_name(f"{module}-{source_number()}{plain.name[len(module) :]}"))

    def build_extensions(self) -> None:
        """With zig where that was said, or where there is nothing else."""
        if wants_zig():
            zig = [sys.executable, "-m", "ziglang", "cc", *(["-target", BUILD] if BUILD else [])]
            self.compiler.set_executables(
                compiler=zig, compiler_so=[*zig, "-fPIC"], linker_so=[*zig, "-shared"], linker_exe=zig
            )
        super().build_extensions()

    def copy_extensions_to_source(self) -> None:
        """For an editable install."""
        for old in (ROOT / NATIVE).glob("*.so"):
            old.unlink()
        super().copy_extensions_to_source()


def packages() -> list[str]:
    """All packages: those beside rmqctl/ are inside it where they are installed."""
    beside = [f"rmqctl.{name}" for top in FLOORS for name in (top, *(f"{top}.{one}" for one in find_packages(top)))]
    return [*find_packages(include=["rmqctl*", "pyspark_rocketmq*"]), *beside]


def source_tree() -> Path:
    """A folder of links with all packages inside rmqctl/, because Cython finds what a module cimports by its folder."""
    tree = Path("build", "tree")
    package = tree / "rmqctl"
    shutil.rmtree(tree, ignore_errors=True)
    package.mkdir(parents=True)
    for name in ("__init__.py", *FLOORS):
        (package / name).symlink_to(ROOT.resolve() / ("rmqctl/__init__.py" if name.endswith(".py") else name))
    return package


def extensions() -> list[Extension]:
    """The modules of store/native, as C made by Cython; none where there is no Cython or nothing that compiles."""
    if BUILD == "plain" or not (has_cc() or wants_zig()) or importlib.util.find_spec("Cython") is None:
        return []
    from Cython.Build import cythonize

    sanitize = BUILD == "sanitize"
    tree = source_tree()
    flags = SANITIZE if sanitize else FLAGS
    found = [
        Extension(
            f"rmqctl.{NATIVE.replace('/', '.')}.{path.stem}",
            [str(tree / NATIVE / path.name)],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if HAS_GIL else [],
            extra_compile_args=flags,
            extra_link_args=flags if sanitize else ["-s"],
            libraries=["dl"],
            py_limited_api=HAS_GIL,
            optional=not BUILD,
        )
        for path in sorted((ROOT / NATIVE).glob("*.py"))
        if path.stem not in NOT_COMPILED
    ]
    modules: list[Extension] = cythonize(
        found, build_dir="build/cython", compiler_directives=DIRECTIVES, show_all_warnings=False
    )
    return modules


def wheel_options() -> dict[str, str]:
    """One wheel for every Python from 3.11 on; of another machine, or of any Linux, where zig was told so."""
    options = {"py_limited_api": "cp311"} if HAS_GIL else {}
    machine = re.fullmatch(r"(\w+)-linux-gnu\.(\d+)\.(\d+)", BUILD)
    if machine:
        options["plat_name"] = "manylinux_{1}_{2}_{0}".format(*machine.groups())
    return options


setup(
    packages=packages(),
    package_dir={f"rmqctl.{top}": top for top in FLOORS},
    cmdclass={"build_ext": Compiled, "build_py": Fresh},
    ext_modules=extensions(),
    options={"bdist_wheel": wheel_options(), "build_ext": {"parallel": os.cpu_count()}},
    # for the build alone: pip puts them into the environment that it builds in
    setup_requires=["ziglang"] if wants_zig() else [],
)
