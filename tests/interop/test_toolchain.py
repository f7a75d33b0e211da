"""What the interop tests say where something is missing. Needs neither Java nor Maven: both are played by scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.toolchain import HarnessError, run, toolchain

JAVA_17 = """echo 'openjdk version "17.0.15" 2025-04-15' >&2"""
JAVA_8 = """echo 'openjdk version "1.8.0_402"' >&2"""
MAVEN_OFFLINE = "echo 'Unknown host' >&2; exit 1"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with an empty cache and nothing on PATH but what the test puts into the returned folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("RMQCTL_INTEROP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("CI", raising=False)
    toolchain.cache_clear()
    yield folder
    toolchain.cache_clear()


def test_no_java(programs: Path) -> None:
    assert "no Java" in (harness.available() or "")


def test_a_java_home_without_java(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(programs, "java", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", "/no/such/home")
    assert "/no/such/home" in (harness.available() or "")


def test_an_old_java(programs: Path) -> None:
    _program(programs, "java", JAVA_8)
    assert "older than Java 11" in (harness.available() or "")


def test_no_maven(programs: Path) -> None:
    _program(programs, "java", JAVA_17)
    assert "no Maven" in (harness.available("4.9.8") or "")


def test_a_failing_fetch_is_a_reason_to_skip_but_an_error_in_ci(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(programs, "java", JAVA_17)
    _program(programs, "mvn", MAVEN_OFFLINE)
    assert "Unknown host" in (harness.available("5.3.3") or "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(HarnessError, match="Maven could not fetch"):
        harness.available("5.3.3")


def test_a_command_that_does_not_end_is_killed() -> None:
    with pytest.raises(HarnessError, match="did not end within"):
        run(["/bin/sh", "-c", "sleep 60 & wait"], 0.2)


def _program(folder: Path, name: str, text: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    program.chmod(0o755)
