"""The readers of `fuzz`, each fed for a time with bytes that lead it into code that no bytes before have run.

atheris leads, where there is one for this Python and this machine. It ends the process that it works in, so that each
reader has one: `python -m tests.proof.guided READER --folder FOLDER`. An input that does harm is kept in the user's
cache, and `python -m tests.proof.guided READER --input FILE` reads it again, with or without atheris.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import processes
from tests.proof.executed import cache_folder
from tests.proof.proving import Case

READERS = (
    "frames",
    "salvage",
    "append",
    "log",
    "queues-and-index",
    "configuration",
    "timer",
    "pop",
    "tiered",
    "rocksdb",
    "rocksdb-parts",
    "journal",
    "check-state",
    "config-json",
    "compression",
    "ids-and-times",
    "lines",
    "tables",
    "wire",
)
"""As `fuzz.readers` names them; that would import the product, which has to be watched from its first line on."""

_EXECUTED = re.compile(r"stat::number_of_executed_units: *(\d+)")
# Watched code takes several times as long as other.
_MOST_SECONDS = 60.0
# Seconds on the clock after which one input hangs, whatever else the machine does; and what a process may take more.
_HANGS, _BESIDES = 900, 1800.0
_WORDS = (
    rb"Infinity",
    rb"-1e999",
    rb"NaN",
    rb"null",
    rb"{}",
    rb"[[[[[[[[",
    rb"\xff",
    rb"\x7f\xff\xff\xff",
    rb"\x80\x00\x00\x00",
    rb"\x7f\xff\xff\xff\xff\xff\xff\xff",
)
_TOLD = 30


def is_possible() -> bool:
    """Whether there is atheris here."""
    return importlib.util.find_spec("atheris") is not None


def cases(seed: int, count: int) -> Iterator[Case]:
    """Each reader, for `count` seconds. None without atheris, which is said."""
    if not is_possible():
        print(
            "guided: not tried, there is no atheris for this Python on this machine; fuzz goes by lot", file=sys.stderr
        )
        return
    for name in READERS:
        yield name, functools.partial(_guided, name, seed, count)


def _guided(name: str, seed: int, seconds: int, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.proof.guided", name, "--folder", str(folder)]
    log = folder / "log"
    with log.open("wb") as said:
        options = {"stdout": said, "stderr": subprocess.STDOUT, "env": os.environ | {"PYTHONHASHSEED": "0"}}
        process = processes.start(
            [*command, "--seed", f"{seed}", "--seconds", f"{seconds}"], seconds=seconds + _BESIDES, **options
        )
        code = process.wait()
    text = log.read_text(errors="replace")
    if code:
        raise AssertionError(f"{_kept(name, folder)}\n{_last_words(text)}")
    [executed] = _EXECUTED.findall(text)
    print(f"guided: {name}: {int(executed):,} inputs", file=sys.stderr)


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith(("#", "INFO", "stat::", "\tNEW"))]
    return "\n".join(lines[-_TOLD:])


def _kept(name: str, folder: Path) -> str:
    """Keep the inputs that did harm; the commands that read them again."""
    told = []
    for found in sorted(folder.glob("harm/*")):
        data = found.read_bytes()
        place = cache_folder() / "guided" / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        told.append(f"  its input again: python -m tests.proof.guided {name} --input '{place}'")
    return "\n".join(told) or "  no input is known to have done it"


def _lead(name: str, folder: Path, seed: int, seconds: int) -> None:
    """Feed a reader; the process ends here."""
    import atheris

    with contextlib.ExitStack() as opened:
        with atheris.instrument_imports(include=["rmqctl"]):
            from tests.proof.fuzz import readers, within_limits

            reader = opened.enter_context(readers(folder / "sound"))[name]
            # much is imported only where it is needed
            for sample in reader.samples:
                reader.read(sample)
        for below in ("samples", "harm"):
            (folder / below).mkdir()
        for number, sample in enumerate(reader.samples):
            (folder / "samples" / f"{number}").write_bytes(sample)
        (folder / "words").write_bytes(b"".join(b'"%s"\n' % word for word in _WORDS))
        options = {
            "seed": seed + 1,  # 0 would be another one each time
            "max_total_time": seconds,
            "max_len": 2 * max(map(len, reader.samples)) + 4096,
            "timeout": _HANGS,
            "rss_limit_mb": 8192,
            "artifact_prefix": f"{folder}/harm/",
            "dict": folder / "words",
            "print_final_stats": 1,
        }
        given = [f"-{option}={value}" for option, value in options.items()]
        atheris.Setup(
            [sys.argv[0], *given, f"{folder}/samples"], lambda data: within_limits(reader, data, _MOST_SECONDS)
        )
        atheris.Fuzz()


def _read_again(name: str, file: Path) -> None:
    from tests.proof.fuzz import readers, within_limits

    with tempfile.TemporaryDirectory(prefix="rmqctl-guided-") as folder, readers(Path(folder)) as found:
        within_limits(found[name], file.read_bytes())
    print("nothing but an error of ours came out")


def main(arguments: list[str]) -> None:
    """Feed one reader, or let it read one input again."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.guided", description=__doc__)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--input", type=Path, metavar="FILE", help="read this, and do no more")
    parser.add_argument("--folder", type=Path, help="an empty one, for what is needed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args(arguments)
    if given.input is not None:
        _read_again(given.reader, given.input)
        return
    with contextlib.ExitStack() as opened:
        folder = given.folder or Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="rmqctl-guided-")))
        _lead(given.reader, folder, given.seed, given.seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
