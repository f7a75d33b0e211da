"""Spark's classes as a JVM left them, so that the next one has them at once: sessions start in about half the time.

HotSpot leaves such an archive when it ends (JEP 350), which takes it seconds. So the first session only leaves a mark,
the second one an archive, and all that follow use it; who runs Spark once, in a container say, never pays for it. A JVM
goes without an archive that is not of its own classes. It lies in the user's cache directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RmqctlError
from rmqctl.pipeline.spark.java import Java
from rmqctl.store.files import io

SWITCH = "RMQCTL_CLASS_ARCHIVE"
"""An environment variable: 0 for no archive, neither used nor made."""

_MARK, _TRIED, _NEW = ".seen", ".tried", ".new"
# an archive has 120 MB: it is not worth a disk that is nearly full
_FREE_AT_LEAST = 2 * 1024**3
# a JVM that finds the archive too old is to say so to nobody
_QUIET = "-Xlog:cds=off -Xlog:cds*=off -XX:+IgnoreUnrecognizedVMOptions"


class ClassArchive(NamedTuple):
    """`options` for the JVM; `made`: the file that it leaves at its end, None if it makes none, which `keep` gives its
    name `path`."""

    options: str = ""
    made: Path | None = None
    path: Path = Path()

    def keep(self) -> None:
        """The JVM has ended by itself: what it left is for those to come."""
        if self.made is not None:
            with contextlib.suppress(RmqctlError):
                if self.made.exists():
                    io.rename(self.made, self.path)

    def discard(self) -> None:
        """The JVM took too long and was killed: what it left may be half of it, and it is not asked again."""
        if self.made is not None:
            with contextlib.suppress(RmqctlError):
                if self.made.exists():
                    io.remove(self.made)

    def put_off(self) -> None:
        """Somebody stopped the JVM, or it did not start: the next session makes the archive."""
        self.discard()
        if self.made is not None:
            with contextlib.suppress(RmqctlError):
                io.rename(_beside(self.path, _TRIED), _beside(self.path, _MARK))


def class_archive(java: Java, spark: Path, environment: Mapping[str, str] | None = None) -> ClassArchive:
    """What to do about the archive for `java` and the Spark in the folder `spark`. Nothing where the JVM is another
    than HotSpot, where the cache cannot be written to, and where its disk has little room."""
    environment = os.environ if environment is None else environment
    if environment.get(SWITCH) == "0" or not (java.home / "lib" / "server" / "classes.jsa").exists():
        return ClassArchive()
    path = _path(java, spark, environment)
    if path is None:
        return ClassArchive()
    if path.exists():
        return ClassArchive(f'"-XX:SharedArchiveFile={path}" {_QUIET}')
    try:
        return _to_be_made(path)
    except (RmqctlError, OSError):
        return ClassArchive()


def _to_be_made(path: Path) -> ClassArchive:
    mark, tried = _beside(path, _MARK), _beside(path, _TRIED)
    if tried.exists():
        return ClassArchive()
    if not mark.exists():
        io.make_directories(path.parent)
        io.create_file(mark, 0)
        return ClassArchive()
    if io.free_bytes(path.parent) < _FREE_AT_LEAST:
        return ClassArchive()
    # once: whatever goes wrong would go wrong each time, and take its time
    io.rename(mark, tried)
    made = path.with_name(f"{path.name}.{os.getpid()}{_NEW}")
    return ClassArchive(f'"-XX:ArchiveClassesAtExit={made}" {_QUIET}', made, path)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _path(java: Java, spark: Path, environment: Mapping[str, str]) -> Path | None:
    """Where the archive belongs; None where the user has no directory for such things."""
    given = environment.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
        release = (java.home / "release").stat()
        jars = (spark / "jars").stat()
    except (OSError, RuntimeError):
        return None
    one = (str(java.home.resolve()), release.st_mtime_ns, release.st_size, str(spark.resolve()), jars.st_mtime_ns)
    return folder / "rmqctl" / f"spark-java{java.version}-{hashlib.sha256(repr(one).encode()).hexdigest()[:16]}.jsa"
