"""How much memory the work on a whole store takes at most, beyond the files it has mapped."""

from __future__ import annotations

from collections.abc import Iterator

from bench import child
from bench.measure import Measurement
from bench.stores import BenchStore

_MIB = 1 << 20
_WORKS = ("check", "scan", "recover", "rebuild")


def peaks(store: BenchStore) -> Iterator[Measurement]:
    """MiB of anonymous memory, seen fifty times a second; `other` is all resident memory, mapped files included."""
    for work in _WORKS:
        store.reset(crashed=work == "recover")
        outcome = child.run(work, store.path)
        yield Measurement(
            f"memory-{work}-{store.name}", outcome.anonymous / _MIB, outcome.resident / _MIB, None, "MiB", 1,
            "with mapped files; stay under", at_least=512, aim=256,
        )  # fmt: skip
    store.reset()
