"""Where the empty end of a file on a server begins, without reading it: a server has no holes, and store files are made
in their full size.

The version that S3 gives a file which came in one piece is the MD5 of its bytes (ETag). So what was read from the
beginning, and zeros behind it, are the file if they have that digest. Nothing is guessed: a file with anything behind a
gap of zeros has another one, and so has one whose version is no digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from rmqctl.store.remote.blocks import BLOCK

_ZEROS = bytes(1 << 20)
_DIGEST = re.compile(r'"?([0-9a-f]{32})"?')


def digest_of(version: str) -> str | None:
    """The MD5 that a version says, in hex; None for one that certainly is none."""
    match = _DIGEST.fullmatch(version)
    return match[1] if match else None


def end_of_data(read: Callable[[int, int], bytes], size: int, digest: str) -> int | None:
    """Position behind the last byte that is not zero, in a file of this size and MD5 with more zeros than data; None
    where that is not so. `read(position, length)` is asked for what is before it and for the block behind."""
    if any(read(size // 2 // BLOCK * BLOCK, BLOCK)):
        return None
    found = hashlib.md5(usedforsecurity=False)
    end = position = 0
    while position < size // 2:
        block = read(position, BLOCK)
        filled = len(block.rstrip(b"\0"))
        if not filled:
            break
        found.update(block)
        position += len(block)
        end = position - len(block) + filled
    left = size - position
    while left > 0:
        found.update(_ZEROS[:left])
        left -= len(_ZEROS)
    return end if found.hexdigest() == digest else None
