"""Expectations of the golden stores: what the looking verbs answer on each, and what recover and repair make of it.

golden/expect/NAME.json holds them for one store; `expected(NAME)` reads it. They hold codes, numbers and digests of
bytes, but no sentences. After an intended change of behaviour write them anew and read the difference:

    python -m tests.expectations [NAME …]
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rmqctl.main import main
from rmqctl.store.config.releases import VERSIONS
from tests import features, goldens
from tests.goldens import GOLDENS, tree_state

FOLDER = goldens.FOLDER / "expect"
ZONE = "UTC"
"""Names of index files are local times."""
_OF_A_FINDING = ("physical_offset", "topic", "queue_id", "messages", "bytes")
_OF_A_RECOVERY = ("log_bytes", "log_files", "queue_files")
_LONG = 8
"""A list with more items is held as its length and a digest."""

Answer = dict[str, Any]

_OF_5_5 = goldens.FOLDER / "v55"
_ARCHIVES = {
    name: _OF_5_5 / f"{name}.tar.xz" for name in ("v55-controller", "v55-crash", "v55-nommap", "v55-syncflush")
}
_FEATURES = tuple(path.name.removesuffix(".tar.xz") for path in sorted(features.FOLDER.glob("*.tar.xz")))
NAMES = (*GOLDENS, *_ARCHIVES, *_FEATURES)
"""Names of all stores that have expectations."""


def copy_of(name: str, folder: Path) -> Path:
    """Make a private copy of the store `name` in `folder` and return its path."""
    if name in _ARCHIVES:
        goldens.unpack(_ARCHIVES[name], folder)
        return folder / name
    return features.feature_store(name, folder) if name in _FEATURES else goldens.golden(name, folder)


def expected(name: str) -> Answer:
    """Return the expectations of the store `name`."""
    answer: Answer = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return answer


def observed(name: str, folder: Path) -> Answer:
    """Return what the verbs answer now on copies of the store `name`, made in `folder`; in the form of `expected`.

    Looking must leave the store as it is, and so must a change that was undone: AssertionError if not.
    """
    store = copy_of(name, folder / "looked-at")
    before = tree_state(store)
    found: Answer = {
        "info": _info(store),
        "check": _check(store),
        "predict": {broker: _predict(store, broker) for broker in VERSIONS},
        "to": {version: _compatibility(store, version) for version in VERSIONS},
    }
    assert tree_state(store) == before, f"looking changed {name}"
    found["recover"] = _changed(store, "recover", _recover_report)
    assert tree_state(store) == before, f"recover and undo changed {name}"
    found["repair"] = _changed(store, "repair", _repair_report)
    assert tree_state(store) == before, f"repair and undo changed {name}"
    return found


def _info(store: Path) -> Answer:
    code, [row] = _asked(store, "info")
    del row["path"], row["writes"]
    for part in ("commitlog", "consumequeue", "index"):
        row[part]["problems"] = len(row[part]["problems"])
    row["not_read"] = len(row["not_read"])
    row["databases"] = len(row["databases"])
    return {"exit": code, **row}


def _check(store: Path) -> Answer:
    code, rows = _asked(store, "check")
    by_code: dict[str, list[str]] = {}
    for row in rows:
        numbers = " ".join(f"{name}={row[name]}" for name in _OF_A_FINDING if row[name] is not None)
        by_code.setdefault(f"{row['code']} {row['severity']}", []).append(f"{row['file']} {numbers}".strip())
    return {"exit": code, "findings": {found: _short(places) for found, places in sorted(by_code.items())}}


def _predict(store: Path, broker: str) -> Answer:
    # a start soon after the store was written: later ones pass over what was due
    with mock.patch("rmqctl.store.timer.pending.wheel_ms", return_value=1 << 60):
        code, rows = _asked(store, "predict", "--broker", broker)
    if not rows:
        return {"exit": code}
    [row] = rows
    row["warnings"] = len(row["warnings"])
    row["recovery"] = {name: row["recovery"][name] for name in _OF_A_RECOVERY} if row["recovery"] else None
    row["config"] = [part.get("file") for part in row["config"]]
    return {"exit": code, **row}


def _compatibility(store: Path, version: str) -> Answer:
    code, [row] = _asked(store, "predict", "--to", version)
    return {"exit": code, "differences": [f"{each['effect']} {each['part']}" for each in row["differences"]]}


def _changed(store: Path, verb: str, report_of: Callable[[Answer], Answer]) -> Answer:
    code, rows = _asked(store, verb, "-y")
    answer: Answer = {"exit": code}
    if rows:
        answer |= report_of(rows[0])
    if rows and rows[0]["journal"]:
        answer |= {"bytes": _digest_of(store), "check": _check(store)}
        assert _asked(store, "undo", "-y")[0] == 0
    return answer


def _recover_report(row: Answer) -> Answer:
    places = [f"{each['physical_offset']}-{each['end_offset']} {each['reason']}" for each in row["damaged"]]
    return {**row, "damaged": places, "left": len(row["left"]), "journal": row["journal"] is not None}


def _repair_report(row: Answer) -> Answer:
    left = sorted(each["code"] for each in row["left"])
    return {**row, "left": left, "journal": row["journal"] is not None, "notes": len(row["notes"])}


def _digest_of(store: Path) -> str:
    """Return a digest of the paths, sizes and bytes of all files."""
    state = [(path, size, digest) for path, (size, _, digest) in tree_state(store).items()]
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _asked(store: Path, verb: str, *options: str) -> tuple[int, list[Answer]]:
    """Run a verb with --json and return its exit code and rows, the store's path being STORE and long lists short."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main([verb, "-s", str(store), "--json", *options])
    rows = [json.loads(line.replace(str(store), "STORE")) for line in out.getvalue().splitlines()]
    return code, [{name: _short(value) for name, value in row.items()} for row in rows]


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list) and len(value) > _LONG:
        return {"count": len(value), "sha256": hashlib.sha256(json.dumps(value).encode()).hexdigest()}
    return value


def _write(names: tuple[str, ...]) -> None:
    os.environ["TZ"] = ZONE
    time.tzset()
    FOLDER.mkdir(exist_ok=True)
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(observed(name, Path(folder)), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(name, file=sys.stderr)


if __name__ == "__main__":
    _write(tuple(sys.argv[1:]))
