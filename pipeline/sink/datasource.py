"""The data source `rocketmq` as a whole: what reads a store, and `df.write` and `writeStream` into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from rmqctl.pipeline.sink.options import parse_sink_options
from rmqctl.pipeline.source.datasource import RocketMQSource
from rmqctl.pipeline.stores.telling import sentence_first

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


class RocketMQStore(RocketMQSource):
    """A store of RocketMQ, to read and to write. Options of a write: `options.SINK_OPTIONS`."""

    @sentence_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What writes a frame of this schema. UsageError for wrong options or columns, StoreInUseError, RefusedError
        where `overwrite` would have to overwrite something."""
        from rmqctl.pipeline.sink.writers import MessageWriter

        return MessageWriter(parse_sink_options(self.options), schema, overwrite)

    @sentence_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """What writes the micro-batches of a query. UsageError also for the output mode `complete`."""
        from rmqctl.formats.errors import UsageError
        from rmqctl.pipeline.sink.writers import MessageStreamWriter

        if overwrite:
            raise UsageError('a store keeps every message: there is no outputMode("complete"), only "append"')
        return MessageStreamWriter(parse_sink_options(self.options), schema)
