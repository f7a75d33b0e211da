"""`make demo`: writes a store, kills the writer in the middle, and shows what the tool makes of the remains.

It ends with SQL, where there is DuckDB.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rmqctl.language.speech import speak
from rmqctl.output.table import said
from rmqctl.store.status import SQL

MESSAGES = 100_000
KILLED_AT = 0.97
_LOG_FILE_SIZE = 4 * 1024 * 1024
_CONFIG = f"""# small files, so that a small store has many of them
mappedFileSizeCommitLog={_LOG_FILE_SIZE}
mappedFileSizeConsumeQueue=200000
maxHashSlotNum=50000
maxIndexNum=200000
"""
_WORDS = "paid shipped returned cancelled".split()
_DAY = 86_400


def _lines(count: int) -> Iterator[bytes]:
    for number in range(count):
        state = _WORDS[number % len(_WORDS)]
        record = {
            "topic": ("Orders", "Payments", "Audit")[number % 3],
            "queue_id": number % 4,
            "tags": state,
            "keys": [f"order-{number}"],
            "body": f'{{"order": {number}, "state": "{state}", "amount": {number * 37 % 10_000}}}',
        }
        yield json.dumps(record).encode() + b"\n"


def _rmqctl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rmqctl", *arguments]


def _say(text: str) -> None:
    print(f"\n# {said(text)}", flush=True)


def _show(*arguments: str, expected: int = 0) -> None:
    """Run a command as a user would, and stop the demo if it does not end as expected."""
    shown = " ".join(f"'{part}'" if any(sign in part for sign in " |{}") else part for part in arguments)
    print(f"$ rmqctl {shown}", flush=True)
    code = subprocess.run(_rmqctl(*arguments), check=False).returncode
    if code != expected:
        sys.exit(said(f"the demo expected exit code {expected} and got {code}"))
    if code:
        print(said(f"(exit code {code})"), flush=True)


def _write_and_kill(store: Path, config: Path) -> None:
    """Feed a writer and kill it when most of the messages are in: nothing is flushed, closed or tidied up."""
    print(f"$ generate {MESSAGES} messages | rmqctl append -s {store} --create --from - --keep-going", flush=True)
    command = _rmqctl("append", "-s", str(store), "-c", str(config), "--create", "--from", "-", "--keep-going")
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the writer has failed; its exit code says so
            for number, line in enumerate(_lines(MESSAGES)):
                writer.stdin.write(line)
                if number == int(MESSAGES * KILLED_AT):
                    writer.stdin.flush()
                    writer.send_signal(signal.SIGKILL)
                    break
        with contextlib.suppress(BrokenPipeError):
            writer.stdin.close()
    if writer.returncode != -signal.SIGKILL:
        sys.exit(said(f"the writer ended with exit code {writer.returncode} before the demo could kill it"))
    seconds = f"{time.monotonic() - begin:.0f}"
    print(said(f"killed with SIGKILL after {seconds} s"), flush=True)


def _tear(store: Path) -> None:
    """What a power cut adds to a kill: the last frame is on disk by half."""
    from rmqctl.formats.message import StoredMessage
    from rmqctl.store.log.walk import walk
    from rmqctl.store.store_files import StoreFiles

    with StoreFiles(store) as files:
        last = [
            record for record in walk(files.log, files.log.files[-2].start_offset) if isinstance(record, StoredMessage)
        ]
        file = files.log.find(last[-1].physical_offset)
        assert file is not None
        path, position = file.path, last[-1].physical_offset - file.start_offset
    half = last[-1].total_size // 2
    with path.open("r+b") as log:
        log.seek(position + half)
        log.write(bytes(last[-1].total_size - half))


def _age(store: Path) -> None:
    """Make the first two commitlog files four days old, so that there is something to clean."""
    for path in sorted((store / "commitlog").iterdir())[:2]:
        moment = time.time() - 4 * _DAY
        os.utime(path, (moment, moment))


def _query(store: Path) -> None:
    """The same store in SQL."""
    if importlib.util.find_spec("duckdb") is None:
        _say(f"SQL is left out, because there is no duckdb: {SQL}")
        return
    _say("SQL over the store")
    statement = (
        "select topic, tags, count(*) n, sum(size) bytes from messages group by all order by topic, tags limit 6"
    )
    _show("sql", "-s", str(store), statement)


def main() -> int:
    """Run the demo in a temporary folder; 0 if every command ended as it should."""
    speak(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="rmqctl-demo-"))
    store, config = folder / "store", folder / "broker.conf"
    config.write_text(_CONFIG, encoding="utf-8")
    try:
        _say("A writer is killed in the middle of its work")
        _write_and_kill(store, config)
        _tear(store)
        _say("The store was not closed, and its last message is torn")
        _show("info", "-s", str(store), expected=1)
        _say("Writing to it is refused: opening never repairs")
        _show("append", "-s", str(store), "-t", "Orders", "--body", "one more", expected=5)
        _say("What recovery would do, then recovery")
        _show("recover", "-s", str(store), "--dry-run")
        _show("recover", "-s", str(store))
        _say("Messages by key, by queue and time, by tag")
        _show("query", "-s", str(store), "-t", "Orders", "-k", "order-300")
        _show("query", "-s", str(store), "-t", "Payments", "-q", "1", "--at", "1h ago")
        _show("cat", "-s", str(store), "-t", "Audit", "--tag", "paid || returned", "-n", "5")
        _show("append", "-s", str(store), "-t", "Orders", "--tags", "paid", "-k", "order-new", "--body", "one more")
        _show("query", "-s", str(store), "-t", "Orders", "-k", "order-new", "--json")
        _show("ls", "-s", str(store), "--topics")
        _age(store)
        _say("Two commitlog files are four days old now")
        _show("clean", "-s", str(store), "--dry-run")
        _query(store)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _say("Done. `rmqctl --help` shows every verb.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
