"""The archive of Spark's classes: made once, at the end of the second session, and used from then on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rmqctl.pipeline.spark.class_archive import SWITCH, ClassArchive, class_archive
from rmqctl.pipeline.spark.java import Java, find_java
from rmqctl.store.files import io
from tests import processes

ROOT = Path(__file__).parents[3]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A runtime with what HotSpot has."""
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    return Java(home, 17, "the test")


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def cached(tmp_path: Path) -> list[str]:
    """The ends of the names of what lies in the cache."""
    return sorted(path.name.partition(".jsa")[2] for path in tmp_path.glob("cache/rmqctl/*"))


def half_made(tmp_path: Path, java: Java, spark_home: Path) -> tuple[dict[str, str], ClassArchive]:
    """The second session's archive, of which half is there, and the environment of all sessions."""
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    _, second = (class_archive(java, spark_home, environment) for _ in range(2))
    assert second.made is not None
    second.made.write_bytes(b"half")
    return environment, second


def test_the_second_session_makes_it_and_the_third_uses_it(tmp_path: Path, java: Java, spark_home: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert class_archive(java, spark_home, environment) == ClassArchive()
    assert cached(tmp_path) == [".seen"]
    second = class_archive(java, spark_home, environment)
    assert second.made is not None
    assert f'"-XX:ArchiveClassesAtExit={second.made}"' in second.options
    # while it is being made, another session does nothing about it
    assert class_archive(java, spark_home, environment) == ClassArchive()
    second.made.write_bytes(b"classes")
    second.keep()
    assert second.path.read_bytes() == b"classes"
    third = class_archive(java, spark_home, environment)
    assert f'"-XX:SharedArchiveFile={second.path}"' in third.options
    assert third.made is None
    assert cached(tmp_path) == ["", ".tried"]


def test_what_a_killed_jvm_left_is_removed_and_not_tried_again(tmp_path: Path, java: Java, spark_home: Path) -> None:
    environment, second = half_made(tmp_path, java, spark_home)
    second.discard()
    second.keep()
    assert cached(tmp_path) == [".tried"]
    assert class_archive(java, spark_home, environment) == ClassArchive()


def test_what_was_interrupted_is_made_by_the_next_session(tmp_path: Path, java: Java, spark_home: Path) -> None:
    environment, second = half_made(tmp_path, java, spark_home)
    second.put_off()
    assert cached(tmp_path) == [".seen"]
    third = class_archive(java, spark_home, environment)
    assert "ArchiveClassesAtExit" in third.options
    third.keep()  # of a JVM that left nothing
    assert cached(tmp_path) == [".tried"]


def test_another_java_or_spark_has_another_one(tmp_path: Path, java: Java, spark_home: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        class_archive(java, spark_home, environment)
    (java.home / "release").write_text('JAVA_VERSION="17.0.10"\n')
    assert class_archive(java, spark_home, environment) == ClassArchive()
    os.utime(spark_home / "jars", ns=(1, 1))
    assert class_archive(java, spark_home, environment) == ClassArchive()
    assert cached(tmp_path) == [".seen", ".seen", ".tried"]


def test_none_where_it_is_not_wanted_or_cannot_be(
    tmp_path: Path, java: Java, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert class_archive(java, spark_home, {**environment, SWITCH: "0"}) == ClassArchive()
    assert cached(tmp_path) == []
    class_archive(java, spark_home, environment)
    monkeypatch.setattr(io, "free_bytes", lambda path: 1 << 30)
    assert class_archive(java, spark_home, environment) == ClassArchive()
    assert cached(tmp_path) == [".seen"]
    (tmp_path / "file").touch()
    assert class_archive(java, spark_home, {"XDG_CACHE_HOME": str(tmp_path / "file")}) == ClassArchive()
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    (tmp_path / "cache" / "rmqctl").rename(tmp_path / "moved")
    assert class_archive(java, spark_home, environment) == ClassArchive()
    assert cached(tmp_path) == []


_SESSIONS = """
import sys
from rmqctl.pipeline.engine.engine import SparkEngine
from rmqctl.pipeline.spark.session import spark_session
from rmqctl.store.compiled.notices import tell_notices
tell_notices(print)
for number in range(int(sys.argv[1])):
    with spark_session("local[1]") as session:
        arguments = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
        print(number, SparkEngine(session).run("job", abs, [-1]), "SharedArchiveFile" in str(arguments))
"""


@pytest.mark.jvm
def test_spark_starts_from_it(tmp_path: Path) -> None:
    """With -Xshare:on a JVM ends at once if it cannot use what it was given."""
    if not (find_java().home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no classes.jsa, so Spark makes no archive here")

    def run(count: int, **environment: str) -> list[str]:
        given = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "a cache"), SWITCH: "", **environment}
        command = [sys.executable, "-c", _SESSIONS, str(count)]
        ended = processes.run(command, env=given)
        return ended.stdout.splitlines() or ended.stderr.splitlines()[-1:]

    first, second, said = run(2)
    assert (first, second) == ("0 [1] False", "1 [1] False")
    assert said.startswith("Spark's classes are kept for faster starts")
    assert run(1, JAVA_TOOL_OPTIONS="-Xshare:on") == ["0 [1] True"]
    (archive,) = tmp_path.glob("a cache/rmqctl/*.jsa")
    assert archive.stat().st_size > 1 << 20
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    assert run(1) == ["0 [1] True"]
