"""Exports messages by tasks: they write attempts, the driver gives those that count their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.pipeline.engine.engine import Engine
from rmqctl.pipeline.engine.scratch import scratch_folder
from rmqctl.pipeline.jobs.export_parts import ExportOrder, MadeFile, SplitExport, compact, export_split, sort_split
from rmqctl.pipeline.splits.over_splits import run_over_splits
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.export.export import ExportReport
from rmqctl.store.export.writers import Compression
from rmqctl.store.files import io
from rmqctl.store.outputs.outputs import new_directory
from rmqctl.store.outputs.staging import staging_of
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.scan.schema import column_names, require_pyarrow
from rmqctl.store.store_files import StoreFiles

SUCCESS = "_SUCCESS"
"""An empty file that says, to whoever reads such a directory, that all of it is there."""

SPLIT_SIZE = 256 * 1024 * 1024
"""Bytes of the log a task, and so a file: larger than elsewhere, because every file costs its writers and readers."""

# bytes of the log for each bucket of partitions: what one task of the second step puts together
_BUCKET = 256 * 1024 * 1024
_MOST_BUCKETS = 1024


def export_with(
    engine: Engine,
    files: StoreFiles,
    target: Path,
    *,
    columns: Sequence[str] | None = None,
    criteria: Criteria | None = None,
    begin: int | None = None,
    end: int | None = None,
    partition: bool = False,
    is_parquet: bool = True,
    compression: Compression = "zstd",
    metadata: Mapping[str, str] | None = None,
    split_size: int = SPLIT_SIZE,
    on_damage: Callable[[CorruptError], None] | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write the messages that `criteria` ask for into the new directory `target`.

    Its files are `part-NNNNN` in the log's order, or with `partition` `topic=…/day=…/part-N`, where a small topic is
    one file; Parquet or Arrow IPC; and `_SUCCESS`. The same bytes from every engine. `begin` and `end`: physical
    offsets. Damage is told to `on_damage` and passed. `target` has to be on a file system that all machines see.
    NotFoundError, and no directory, if nothing matches; UsageError, RefusedError, WriteFailedError.
    """
    require_pyarrow()
    names = column_names(columns)
    chosen = criteria or Criteria()
    _ = chosen.tag_filter  # a malformed expression is said before anything starts
    if target.name in ("", ".", ".."):
        raise UsageError("the export needs the name of a new directory", file=target)
    target = target.absolute()
    length = max(0, files.log.max_offset - max(files.log.min_offset, 0))
    buckets = min(_MOST_BUCKETS, -(-length // _BUCKET) or 1)
    scratch_path = staging_of(target).with_name(staging_of(target).name + "-scratch")
    report = ExportReport()
    with new_directory(target, files.layout) as root, scratch_folder(scratch_path) as scratch:
        order = ExportOrder(names, chosen, is_parquet, compression, dict(metadata or {}), str(scratch), buckets)
        task = partial(sort_split if partition else export_split, order)
        results = run_over_splits(
            engine, "export", task, files, split_size=split_size, begin=begin, end=end, progress=progress
        )
        for result in results:
            report.messages += result.messages
            report.bodies_as_stored += len(result.bodies)
            if on_damage is not None:
                for damage in (*result.damages, *result.bodies):
                    on_damage(damage)
        if not report.messages:
            raise NotFoundError("no message matched: nothing was written")
        made = _sorted(engine, order, results) if partition else _numbered(order, results)
        _install(scratch, root, made, report)
        report.partitions = len({Path(one.path).parent for one in made}) if partition else 0
        io.create_file(root / SUCCESS, 0)
    return report


def _numbered(order: ExportOrder, results: Iterable[SplitExport]) -> list[MadeFile]:
    made = [result.made for result in results if result.made is not None]
    return [one._replace(path=f"part-{number:05d}{order.suffix}") for number, one in enumerate(made)]


def _sorted(engine: Engine, order: ExportOrder, results: Iterable[SplitExport]) -> list[MadeFile]:
    asides = [result.aside for result in results if result.aside is not None]
    task = partial(compact, order, asides)
    return [one for made in engine.run("export: putting together", task, range(order.buckets)) for one in made]


def _install(scratch: Path, root: Path, made: Iterable[MadeFile], report: ExportReport) -> None:
    """Give the files their places; they are on the disk already."""
    for one in made:
        path = root / one.path
        io.make_directories(path.parent)
        io.rename(scratch / one.attempt, path)
        report.files += 1
        report.bytes += one.size
