"""A folder with rmqctl, the Python that runs this and every library below both, the C library and its loader too.

Programs in it start by that loader and look for libraries there alone: what C library a machine has, or whether it has
one, does not matter; its kernel has to be as new as the C library asks (3.2 for glibc 2.36).
"""

from __future__ import annotations

import io
import lzma
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from gzip import compress
from hashlib import sha256
from pathlib import Path
from typing import Any

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

# of Python's library: what no verb imports; of its modules in C some bring a library under the GPL
LEFT_OUT = (
    "__pycache__", "config-*", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data",
    "site-packages", "sqlite3", "test", "tkinter", "turtle.py", "turtledemo", "_ctypes_test.*", "_curses*.so",
    "_dbm.*", "_gdbm.*", "_sqlite3.*", "_test*.so", "_tkinter.*", "_xx*.so", "nis.*", "readline.*", "xx*.so",
)  # fmt: skip
# of packages: what is for compilers and readers, file systems and protocols of pyarrow and languages of pygments that
# no verb uses; not *.pxd of ours, which count for what is compiled from them
UNUSED = (
    "**/*.pyi", "**/*.h", "**/*.a", "numpy/**/*.pxd", "numpy/f2py", "numpy/random", "numpy/_core/_simd.*",
    "numpy/_core/*_tests.*", "pyarrow/**/*.pxd", "pyarrow/*.pyx", "pyarrow/*.pxi", "pyarrow/include", "pyarrow/src",
    "pyarrow/*flight*", "pyarrow/_substrait*", "pyarrow/*orc.*", "pyarrow/*s3*", "pyarrow/_hdfs*", "pyarrow/_gcsfs*",
    "pyarrow/_azurefs*", "pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.*.*", "pyarrow/*encryption*",
    "pyarrow/_pyarrow_cpp_tests*", "pygments/lexers/[a-ce-oq-rt-z]*.py", "pygments/lexers/_[a-ln-z]*.py",
)  # fmt: skip

# a program of the folder, by the folder's own loader and libraries
WRAPPER = """#!/bin/sh
here=${{0%/*}}
exec "$here/../lib/{loader}" --inhibit-cache --library-path "$here/../lib" --argv0 "$here/python3" \\
	"$here/../lib/python" {options}"$@"
"""
START = '-I -c "import sys; from rmqctl.start import main; sys.exit(main())" '

# the rest is unpacked by the Python that comes first: an old machine may have no xz
HEAD = """#!/bin/sh
# {name}: rmqctl with its own Python, for Linux. It unpacks itself once, into $RMQCTL_ROOT (~/.cache/rmqctl).
case $0 in */*) self=$0 ;; *) self=$(command -v -- "$0") ;; esac
unpack() {{
	[ -n "$1" ] && [ ! -L "$1" ] && mkdir -p -m 700 "$1" 2>/dev/null || return 1
	# a folder of another user is used where it was named
	[ -n "${{RMQCTL_ROOT:-}}" ] || [ -O "$1" ] || return 1
	[ ! -d "$1/{name}" ] || return 0
	new=$1/.new.$$
	mkdir -m 700 "$new" 2>/dev/null || return 1
	[ ! -t 2 ] || echo "rmqctl: unpacks itself into $1, once" >&2
	if head -c {first_end} "$self" | tail -c {first_size} | gzip -dc 2>/dev/null | tar -xf - -C "$new" 2>/dev/null \\
		&& "$new/{name}/bin/python3" -I -S -c "{rest}" "$self" "$new" 2>/dev/null
	then
		# another process may have been faster
		[ -d "$1/{name}" ] || mv "$new/{name}" "$1/" 2>/dev/null
	fi
	rm -rf "$new"
	[ -d "$1/{name}" ]
}}
cache=${{XDG_CACHE_HOME:-${{HOME:+$HOME/.cache}}}}
for place in "${{RMQCTL_ROOT:-${{cache:+$cache/rmqctl}}}}" \\
	"/var/tmp/rmqctl-$(id -u)" "/tmp/rmqctl-$(id -u)" "/dev/shm/rmqctl-$(id -u)"
do
	unpack "$place" && exec "$place/{name}/bin/rmqctl" "$@"
	[ -z "${{RMQCTL_ROOT:-}}" ] || break
done
echo "rmqctl: it cannot unpack itself: that takes a folder with {megabytes} MB of room where programs may start." >&2
echo "  Name one: RMQCTL_ROOT=/path/to/folder $0 ..." >&2
exit 6
"""
REST = (
    "import sys, tarfile; f = open(sys.argv[1], 'rb'); f.seek({start}); "
    "tarfile.open(fileobj=f, mode='r|xz').extractall(sys.argv[2])"
)


def libraries(program: Path) -> Iterator[tuple[str, Path]]:
    """Yield what a program or module loads when it starts, by the names that it asks for; its loader, too.

    SystemExit if one of them is not there.
    """
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        raise SystemExit(f"{program} does not find all of its libraries:\n{done.stdout}")
    for name, place in re.findall(r"^\s*(\S+)(?: => (\S+))? \(0x", done.stdout, re.MULTILINE):
        path = Path(place or name)
        if path.is_absolute():
            yield Path(name).name, path


def fill(folder: Path) -> dict[str, Path]:
    """Put this Python around the packages that lie in `folder`/lib/python3.N. Return the libraries that came along."""
    lib, site = folder / "lib", folder / "lib" / VERSION
    for pattern in UNUSED:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    standard = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    shutil.copytree(standard, site, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    python = Path(sys.base_prefix, "bin", VERSION).resolve()
    shutil.copyfile(python, lib / "python")
    modules = [path for path in site.rglob("*.so*") if not path.is_symlink()]
    found: dict[str, Path] = {}
    for program in [python, *modules]:
        found |= {name: path for name, path in libraries(program) if folder not in path.resolve().parents}
    # the C library asks for it by name when a thread ends
    beside = next(path for name, path in found.items() if name.startswith("libc.so")).resolve().parent
    found |= {path.name: path for path in beside.glob("libgcc_s.so.1")}
    for name, path in found.items():
        shutil.copyfile(path, lib / name)
    own = [lib / "python", *(lib / name for name in found)]
    for path in own:
        path.chmod(0o755)
    if shutil.which("strip"):
        # what auditwheel moved is laid out in a way that strip breaks
        given = [path for path in modules if not path.parent.name.endswith(".libs")]
        subprocess.run(["strip", "--strip-unneeded", *map(str, [*own, *given])], check=True, capture_output=True)
    (loader,) = (name for name in found if name.startswith("ld-linux"))
    (folder / "bin").mkdir()
    for name, options in (("python3", ""), ("rmqctl", START)):
        path = folder / "bin" / name
        path.write_text(WRAPPER.format(loader=loader, options=options), encoding="ascii")
        path.chmod(0o755)
    return found


def licences(folder: Path, found: dict[str, Path]) -> list[dict[str, Any]]:
    """Copy the licences of Python and of libraries into `folder`; return both as components of a bill of materials."""
    folder.mkdir()
    text = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}), "LICENSE.txt")
    if text.exists():
        shutil.copyfile(text, folder / "python")
    number = ".".join(map(str, sys.version_info[:3]))
    named = [("python", number, f"pkg:generic/python@{number}", "Python-2.0")]
    for name, path in sorted(found.items()) if shutil.which("dpkg") else ():
        # /lib may be a link to /usr/lib, and dpkg knows one of both
        place = str(path.resolve()).removeprefix("/usr")
        asked = ["dpkg", "-S", place, f"/usr{place}"]
        package = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.partition(":")[0]
        if not package:
            continue
        copyright_ = Path("/usr/share/doc", package, "copyright")
        if copyright_.exists():
            shutil.copyfile(copyright_, folder / package)
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        named.append((name, said.stdout, f"pkg:deb/debian/{package}@{said.stdout}", f"see licences/{package}"))
    return [
        {
            "type": "library", "bom-ref": f"{purl}#{name}", "name": name, "version": version, "purl": purl,
            "licenses": [{"license": {"name": licence}}],
        }
        for name, version, purl, licence in named
    ]  # fmt: skip


def first_files(folder: Path) -> set[Path]:
    """What Python needs to unpack the rest: its libraries, and the modules that it then imports."""
    code = (
        "import sys, tarfile, lzma; "
        "print(*(getattr(module, '__file__', None) or '' for module in sys.modules.values()), sep='\\n')"
    )
    python = folder / "bin/python3"
    done = subprocess.run([python, "-I", "-S", "-B", "-c", code], check=True, capture_output=True, text=True)
    modules = {Path(line).resolve() for line in done.stdout.splitlines() if line}
    asked = [folder / "lib/python", *(path for path in modules if path.suffix == ".so")]
    with_them = {name for path in asked for name, _ in libraries(path)} | {"libm.so.6", "libpthread.so.0"}
    # the landmarks by which Python finds its library
    needed = {folder / "lib" / VERSION / "os.py", folder / "lib/python", folder / "bin/python3", folder / "bin/rmqctl"}
    needed |= {
        path for path in (folder / "lib").iterdir() if path.name in with_them or path.name.startswith("ld-linux")
    }
    return {path for path in modules | needed if folder in path.parents}


def archive(folder: Path, files: Iterable[Path], name: str, made_at: int) -> bytes:
    """Return a tar of `files` below `name`: the same files give the same bytes."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            entry = tar.gettarinfo(path, f"{name}/{path.relative_to(folder)}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime, entry.mode = made_at, 0o755 if entry.mode & 0o100 else 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return written.getvalue()


def packed(folder: Path, version: str, made_at: int, preset: int) -> bytes:
    """Return the one file that unpacks itself and starts."""
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    digest = sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes())
    name = f"rmqctl-{version}-{digest.hexdigest()[:12]}"
    early = first_files(folder)
    first = compress(archive(folder, early, name, made_at), mtime=0)
    rest = archive(folder, files - early, name, made_at)
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": 1 << 26}]
    second = lzma.compress(rest, filters=filters)
    size = sum(path.stat().st_size for path in files)
    fields: dict[str, Any] = {"name": name, "first_size": len(first), "megabytes": round(size / 1e6 * 1.1)}
    # the head names its own length: it grows with the digits of the number
    end = len(first)
    while True:
        head = HEAD.format(first_end=end, rest=REST.format(start=end), **fields).encode()
        if len(head) + len(first) == end:
            return head + first + second
        end = len(head) + len(first)
