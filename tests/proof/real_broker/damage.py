"""Random damage to every kind of file that a store has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

Change = Callable[[Path, random.Random], str]
"""Changes one file and says how."""

_PLACES = {
    "commitlog": ("commitlog/*",) * 4,
    "queues": ("consumequeue/*/*/*",) * 3,
    "index": ("index/*",) * 2,
    "checkpoint": ("checkpoint",),
    "config": ("config/*",),
}
_WHOLE = ("consumequeue", "index", "consumequeue/*", "consumequeue/*/*")
_MOST = 3
_SPAN = 2000


def damage(root: Path, chance: random.Random) -> list[str]:
    """Change up to three things of the store; what was done, for people."""
    told = [_abort(root, chance)]
    for _ in range(chance.randint(0 if chance.random() < 0.1 else 1, _MOST)):
        if chance.random() < 0.1:
            told.append(_remove_whole(root, chance))
        else:
            told.append(_change_file(root, chance))
    return [text for text in told if text]


def _abort(root: Path, chance: random.Random) -> str:
    """As after a kill, or after a clean stop, whatever it was."""
    if chance.random() < 0.5:
        (root / "abort").write_bytes(chance.choice((b"", b"1234", b"\0\xff")))
        return "abort"
    return ""


def _remove_whole(root: Path, chance: random.Random) -> str:
    found = sorted(root.glob(chance.choice(_WHOLE)))
    if not found:
        return ""
    path = chance.choice(found)
    shutil.rmtree(path)
    return f"{path.relative_to(root)} removed"


def _change_file(root: Path, chance: random.Random) -> str:
    patterns = [pattern for some in _PLACES.values() for pattern in some]
    files = _files(root, chance.choice(patterns))
    if not files:
        return ""
    # most of what goes wrong, goes wrong at the end
    path = files[-1] if chance.random() < 0.4 else chance.choice(files)
    change = chance.choice(_CHANGES)
    return f"{path.relative_to(root)} {change(path, chance)}"


def _files(root: Path, pattern: str) -> list[Path]:
    return sorted(path for path in root.glob(pattern) if path.is_file())


def _used(path: Path) -> int:
    """Bytes up to the last one that is not zero."""
    return len(path.read_bytes().rstrip(b"\0"))


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _place(path: Path, chance: random.Random) -> int:
    return chance.randrange(max(1, _used(path)))


def _flip(path: Path, chance: random.Random) -> str:
    at, bit = _place(path, chance), chance.randrange(8)
    data = path.read_bytes()[at : at + 1]
    if data:
        _write(path, at, bytes([data[0] ^ 1 << bit]))
    return f"bit {bit} of {at} flipped"


def _zero(path: Path, chance: random.Random) -> str:
    at = _place(path, chance)
    count = min(path.stat().st_size - at, chance.randint(1, _SPAN))
    _write(path, at, bytes(count))
    return f"{count} zeros at {at}"


def _zero_rest(path: Path, chance: random.Random) -> str:
    at = _place(path, chance)
    _write(path, at, bytes(path.stat().st_size - at))
    return f"zeros from {at} on"


def _garble(path: Path, chance: random.Random) -> str:
    at = _place(path, chance)
    count = min(path.stat().st_size - at, chance.randint(1, _SPAN))
    _write(path, at, chance.randbytes(count))
    return f"{count} bytes of garbage at {at}"


def _garble_rest(path: Path, chance: random.Random) -> str:
    """What a disk leaves behind the end of a file's messages."""
    at = _used(path)
    count = min(path.stat().st_size - at, chance.randint(1, 200))
    _write(path, at, chance.randbytes(count))
    return f"{count} bytes of garbage behind its end at {at}"


def _shorten(path: Path, chance: random.Random) -> str:
    size = chance.choice((0, _place(path, chance), max(0, path.stat().st_size - chance.randint(1, 30))))
    with path.open("r+b") as file:
        file.truncate(size)
    return f"cut to {size}"


def _append(path: Path, chance: random.Random) -> str:
    data = chance.choice((bytes, chance.randbytes))(chance.randint(1, 100))
    _write(path, path.stat().st_size, data)
    return f"{len(data)} bytes longer"


def _remove(path: Path, chance: random.Random) -> str:
    path.unlink()
    return "removed"


# lengths are changed less often: a broker then does not start, which is soon said
_CHANGES: tuple[Change, ...] = (
    *(_flip, _zero, _garble) * 3,
    *(_zero_rest, _garble_rest) * 2,
    *(_remove, _shorten),
    _append,
)
