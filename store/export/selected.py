"""An export of what is selected of a store: a scan, written as tables or as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rmqctl.formats.errors import UsageError
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.export.export import ExportReport, Lines, Target, export_batches, metadata_of
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.installed import version
from rmqctl.store.outputs.output_place import check_output_place
from rmqctl.store.outputs.outputs import require_new_file
from rmqctl.store.read.selection import OnDamage, Selection
from rmqctl.store.scan.schema import column_names, require_pyarrow
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.export.writers import Compression

TABLES = ("parquet", "arrow")
_OF_PARTITIONS = ("topic", "store_timestamp")
_OF_BODIES = ("physical_offset", "body_error")


class LinesOfColumns(Lines, Protocol):
    """Makes lines of text of the columns that it names."""

    @property
    def needs(self) -> Sequence[str]: ...


def require_target(target: Path, layout: StoreLayout, *, overwrite: bool, is_directory: bool) -> None:
    """RefusedError for a place where nothing may be written, or where something is already."""
    if is_directory:
        check_output_place(target, layout)
    else:
        require_new_file(target, overwrite, layout)


def export_selected(
    files: StoreFiles,
    target: Target,
    selection: Selection,
    columns: Sequence[str] | None = None,
    compression: Compression = "zstd",
    lines: LinesOfColumns | None = None,
    on_damage: OnDamage | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write the messages of `selection`, in the order they were stored, as Parquet or Arrow with these columns (None:
    all), or as `lines` of text, which name their columns themselves.

    Damage is reported to `on_damage` and skipped; without it the first is raised, and there is no file. A body that
    does not unpack is written as stored, reported and counted. UsageError for a
    text format without `lines`, for a table with them and for a name of no column; UnsupportedError without pyarrow;
    RefusedError for a target that is there or lies in a store; NotFoundError where no message matched;
    WriteFailedError.
    """
    require_pyarrow()
    if (target.format in TABLES) != (lines is None):
        if lines is None:
            raise UsageError(
                f"{target.format} is text: something has to make lines of messages",
                hint="give `lines`, such as rmqctl.messages.message_lines.MessageLines",
            )
        raise UsageError(f"lines of text are no {target.format}")
    require_target(target.path, files.layout, overwrite=target.overwrite, is_directory=target.partition)
    from rmqctl.store.scan.bodies import bodies_not_unpacked
    from rmqctl.store.scan.scan import Scan

    wanted = column_names(columns) if lines is None else tuple(lines.needs)
    read = [*wanted, *(name for name in _OF_PARTITIONS if target.partition and name not in wanted)]
    if "body" in wanted:
        read += [name for name in _OF_BODIES if name not in read]
    # views keep all that was read for a batch: good for Parquet of whole batches, not for rows out of many
    views = target.format == "parquet" and not target.partition and selection.criteria.matches_all
    scan = Scan(files.log, read, selection.begin, selection.end, criteria=selection.criteria, views=views)
    schema = scan.schema.with_metadata(metadata_of(files, version(), description(selection, wanted)))
    bad = 0

    def told() -> Iterator[pa.RecordBatch]:
        nonlocal bad
        for batch in scan.batches(on_damage, progress):
            for error in bodies_not_unpacked(batch):
                bad += 1
                if on_damage is not None:
                    on_damage(error)
            yield batch

    report = export_batches(told(), schema, wanted, target, compression, lines)
    report.bodies_as_stored = bad
    return report


def description(selection: Selection, wanted: Sequence[str]) -> dict[str, Any]:
    """What was chosen, for the metadata of the files."""
    given = selection.criteria.described()
    return {"columns": list(wanted), "begin": selection.begin, "end": selection.end, **given}
