"""Fuzzing that is led by what runs; and that it finds what is there, keeps it, and gives it back."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests import quick
from tests.processes import ROOT, run
from tests.proof import guided
from tests.proof.changes import Mutant, build
from tests.proof.fuzz import readers
from tests.proof.proving import PROOFS, prove

needs_atheris = pytest.mark.skipif(not guided.is_possible(), reason="there is no atheris for this Python here")


@needs_atheris
@pytest.mark.thorough
@pytest.mark.turns("guided", 2)
@pytest.mark.timeout(1800)
def test_nothing_but_an_error_of_ours_comes_out(tmp_path: Path) -> None:
    """A twelfth of the readers, drawn: each takes longer to begin than to be led; `make proof` leads all of them."""
    first = zlib.crc32(f"guided {quick.seed}".encode()) % 12
    outcome = prove("guided", PROOFS["guided"].in_ci, 1, tmp_path, share=(first, 12))
    assert outcome.tried == len(guided.READERS[first::12]) > 0
    assert not outcome.failures, "\n".join(outcome.failures)


def test_all_readers_are_led(tmp_path: Path) -> None:
    with readers(tmp_path) as found:
        assert tuple(found) == guided.READERS


def test_without_atheris_it_says_that_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guided, "is_possible", lambda: False)
    assert list(guided.cases(1, 20)) == []
    assert "guided: not tried, there is no atheris" in capsys.readouterr().err


@needs_atheris
@pytest.mark.thorough
@pytest.mark.turns("guided", 2)
@pytest.mark.timeout(1800)
def test_a_mistake_that_no_lot_finds(tmp_path: Path) -> None:
    """It is behind two letters, one after the other, which no sample has."""
    path = "formats/compression.py"
    source = (ROOT / path).read_bytes()
    begin = source.index(b"        if kind == COMPRESSION_LZ4:")
    letters = b" and ".join(b'body[%d:%d] == b"%c"' % (at, at + 1, letter) for at, letter in enumerate(b"rm"))
    careless = b'        if %s:\n            raise LookupError("careless")\n' % letters
    changed = tmp_path / "changed"
    changed.mkdir()
    build(Mutant(path, "careless", begin, begin, careless), changed)

    def proof(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return run([sys.executable, "-m", *map(str, arguments)], seconds=1600, cwd=folder, env=environment)

    lot = proof("tests.proof", "fuzz", "--count", 100, "--processes", 1, folder=changed)
    assert lot.returncode == 0, lot.stderr
    # it ends when the mistake is found: after seconds, on a busy machine after minutes
    led = proof("tests.proof", "guided", "--count", 1200, "--processes", 1, "--only", "compression", folder=changed)
    assert led.returncode == 1, led.stderr
    assert led.stderr.index("its input again:") < led.stderr.index("LookupError: careless")  # a long end is cut off
    [again] = [line.partition("again: ")[2] for line in led.stderr.splitlines() if "its input again:" in line]
    python, option, *rest = shlex.split(again)
    assert (python, option) == ("python", "-m")
    assert Path(rest[-1]).read_bytes().startswith(b"rm")
    assert "LookupError: careless" in proof(*rest, folder=changed).stderr
    mended = proof(*rest, folder=ROOT)
    assert (mended.returncode, mended.stdout) == (0, "nothing but an error of ours came out\n")
