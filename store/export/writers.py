"""Writers of record batches into a file: Parquet and Arrow IPC. They gather batches until a block is large enough."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import pyarrow as pa

from rmqctl.store.files.outputs import OutputFile

Compression = Literal["zstd", "lz4", "none"]

# Bytes in memory of a row group. A few of these are alive at a time.
BLOCK_BYTES = 32 * 1024 * 1024
_BLOCK_ROWS = 1 << 20
# smaller batches are put together
_SMALL_BYTES = 1 << 20
# lines take a few times the memory of the batch that they are made of
_TEXT_BLOCK_BYTES = 8 * 1024 * 1024
_TEXT_THREADS = 2

# Columns of few values, and such whose values follow one another closely. The rest is as good without a dictionary.
_REPEATED = (
    "topic",
    "store_host",
    "born_host",
    "transaction",
    "compression",
    "tags",
    "queue_id",
    "sys_flag",
    "flag",
    "properties.key_value.key",
)
_WITHOUT_STATISTICS = ("body", "stored_body", "stored_properties", "properties", "keys", "body_error")
_ENCODINGS = {
    "msg_id": "DELTA_BYTE_ARRAY",
    "queue_offset": "DELTA_BINARY_PACKED",
    "physical_offset": "DELTA_BINARY_PACKED",
    "store_timestamp": "DELTA_BINARY_PACKED",
    "born_timestamp": "DELTA_BINARY_PACKED",
}


class BlockThread:
    """Writes one block while the caller gathers the next: compressing takes longer than reading.

    A context manager; what goes wrong in the thread is raised by the next call of `run` or `wait`.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "export")
        self._running: Future[None] | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Have `work` done when what runs now has ended, which is waited for."""
        self.wait()
        self._running = self._pool.submit(work)

    def wait(self) -> None:
        """Until nothing runs."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __enter__(self) -> BlockThread:
        return self

    def __exit__(self, *_: object) -> None:
        # nobody removes a file under a thread that writes to it
        self._pool.shutdown(wait=True)


class InlineBlocks:
    """Writes each block in the caller's own thread, for those who are many on one machine."""

    def run(self, work: Callable[[], None]) -> None:
        """Have `work` done now."""
        work()

    def wait(self) -> None:
        """Nothing ever runs."""


class TableWriter(abc.ABC):
    """Record batches into one file, in blocks."""

    def __init__(self, thread: BlockThread | InlineBlocks, block_bytes: int = BLOCK_BYTES) -> None:
        self._thread = thread
        self._block_bytes = block_bytes
        self.pending_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of the writer's schema."""
        self._pending.append(batch)
        self.pending_bytes += batch.nbytes
        self._pending_rows += batch.num_rows
        if self.pending_bytes >= self._block_bytes or self._pending_rows >= _BLOCK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered as a block."""
        if self._pending:
            batches, self._pending = self._pending, []
            self.pending_bytes = self._pending_rows = 0
            self._thread.run(lambda: self._emit(batches))

    def close(self) -> None:
        """Write the rest and the end of the file."""
        self.flush()
        self._thread.wait()
        self._end()

    @abc.abstractmethod
    def _emit(self, batches: list[pa.RecordBatch]) -> None: ...

    @abc.abstractmethod
    def _end(self) -> None: ...


class ParquetWriter(TableWriter):
    """A Parquet file with one row group a block."""

    def __init__(
        self, output: OutputFile, schema: pa.Schema, compression: Compression, thread: BlockThread | InlineBlocks
    ) -> None:
        super().__init__(thread)
        from pyarrow import parquet

        names = set(schema.names)
        self._schema = schema
        self._writer = parquet.ParquetWriter(
            pa.PythonFile(output, mode="w"),
            schema,
            compression=compression,
            use_dictionary=[name for name in _REPEATED if name.partition(".")[0] in names],
            # nobody looks for a message by a range of bodies
            write_statistics=[name for name in names if name not in _WITHOUT_STATISTICS],
            column_encoding={name: encoding for name, encoding in _ENCODINGS.items() if name in names},
        )

    def _emit(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches).replace_schema_metadata(self._schema.metadata)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _end(self) -> None:
        self._writer.close()


class IpcWriter(TableWriter):
    """An Arrow IPC file (Feather version 2). The topics met later are added to their dictionary as deltas."""

    def __init__(
        self, output: OutputFile, schema: pa.Schema, compression: Compression, thread: BlockThread | InlineBlocks
    ) -> None:
        super().__init__(thread)
        options = pa.ipc.IpcWriteOptions(
            compression=None if compression == "none" else compression, emit_dictionary_deltas=True
        )
        self._schema = schema
        self._topics = schema.get_field_index("topic")
        self._dictionary = pa.array([], pa.string())
        self._writer = pa.ipc.new_file(pa.PythonFile(output, mode="w"), schema, options=options)

    def _emit(self, batches: list[pa.RecordBatch]) -> None:
        batches = list(map(self._with_all_topics, batches))
        if sum(batch.nbytes for batch in batches) < _SMALL_BYTES * len(batches):
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        for batch in batches:
            self._writer.write_batch(batch)

    def _with_all_topics(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the longest dictionary so far: batches are made in threads, some know fewer topics than
        batches before them, and a file may only add to a dictionary."""
        if self._topics < 0:
            return batch
        topics = batch.column(self._topics)
        if len(topics.dictionary) >= len(self._dictionary):
            self._dictionary = topics.dictionary
            return batch
        return batch.set_column(
            self._topics, self._schema.field("topic"), pa.DictionaryArray.from_arrays(topics.indices, self._dictionary)
        )

    def _end(self) -> None:
        self._writer.close()


class TextWriter(TableWriter):
    """Lines of text: JSON Lines or CSV."""

    def __init__(
        self,
        output: OutputFile,
        lines_of: Callable[[pa.RecordBatch], memoryview],
        header: str,
        thread: BlockThread | InlineBlocks,
    ) -> None:
        """`lines_of` makes the lines of all rows of a batch, at times of several batches at once; `header` comes
        first."""
        super().__init__(thread, _TEXT_BLOCK_BYTES)
        self._output = output
        self._lines_of = lines_of
        output.write(header.encode("utf-8"))

    def _emit(self, batches: list[pa.RecordBatch]) -> None:
        if sum(batch.nbytes for batch in batches) < _SMALL_BYTES * len(batches):
            batches = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
        with ThreadPoolExecutor(_TEXT_THREADS, "lines") as pool:
            for lines in pool.map(self._lines_of, batches):
                self._output.write(lines)

    def _end(self) -> None:
        """Nothing is left."""


def only(batch: pa.RecordBatch, names: Sequence[str]) -> Any:
    """The batch with these columns."""
    return batch if list(names) == batch.schema.names else batch.select(list(names))
