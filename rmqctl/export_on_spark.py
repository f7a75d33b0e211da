"""`rmqctl export --master …`: the export as tasks of Spark, into a directory of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.output.progress import progress
from rmqctl.spark_options import SparkChoice, job_engine

if TYPE_CHECKING:
    from rmqctl.reports.damage import ToldDamage
    from rmqctl.store.export.export import ExportReport, Target
    from rmqctl.store.read.selection import Selection
    from rmqctl.store.store_files import StoreFiles


def export_on_spark(
    spark: SparkChoice,
    files: StoreFiles,
    selection: Selection,
    names: list[str] | None,
    target: Target,
    compression: Any,
    damage: ToldDamage,
    length: int,
    described: dict[str, Any],
) -> ExportReport:
    """Run the job; `length`: bytes that will be walked; `described`: what was chosen, for the files' metadata."""
    from rmqctl.pipeline.jobs.export import export_with
    from rmqctl.store.export.export import metadata_of
    from rmqctl.store.version import version

    with job_engine(spark) as engine, progress("exporting", length, "bytes") as bar:
        return export_with(
            engine,
            files,
            target.path,
            columns=names,
            criteria=selection.criteria,
            begin=selection.begin or None,
            end=selection.end,
            partition=target.partition,
            is_parquet=target.format == "parquet",
            compression=compression,
            metadata=metadata_of(files, version(), described),
            on_damage=damage,
            progress=bar.advance,
        )
