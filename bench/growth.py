"""Whether the cost grows linearly with the log: seconds a GB over logs of 0.5, 1 and 2 GB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench import child
from bench.measure import Measurement, in_turns
from bench.stores import GIGABYTE, BenchStore, write_store

_SIZES = (0.5, 1.0, 2.0)
_WORKS = ("check", "recover", "rebuild")


def over_sizes(folder: Path, scale: float) -> Iterator[Measurement]:
    """Seconds; `other` are the seconds that each GB more than in the next smaller log takes, so that the start of the
    work drops out. `ratio` compares them with those of the step before: 1 is linear, less is worse than linear."""
    before: dict[str, tuple[float, float, float | None]] = {}
    for size in _SIZES:
        store = write_store(folder, "small", int(size * GIGABYTE * scale), f"growth-{size:g}")
        gigabytes = store.bytes / GIGABYTE
        for work in _WORKS:

            def seconds(work: str = work, store: BenchStore = store) -> float:
                store.reset(crashed=work == "recover")
                return child.run(work, store.path).seconds

            taken = in_turns(seconds, None)
            last_seconds, last_gigabytes, last_step = before.get(work, (0.0, 0.0, None))
            step = (taken.ours - last_seconds) / (gigabytes - last_gigabytes)
            # the first step holds the start of the work as well: nothing to compare with
            before[work] = (taken.ours, gigabytes, step if work in before else None)
            ratio = last_step / step if last_step is not None and step > 0 else None
            yield Measurement(
                f"growth-{work}-{gigabytes:.2f}-GB", taken.ours, step, ratio, "s", taken.n, "s a GB more; 1 is linear"
            )
        store.reset()
        shutil.rmtree(store.path)
