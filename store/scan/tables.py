"""A store in notebooks: what they show of it, and its messages as one table of Arrow, pandas or polars."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import RmqctlError, UnsupportedError
from rmqctl.formats.notebook import as_html
from rmqctl.store.options import Events

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.read.filter import Criteria


class MessageTables:
    """The methods of MessageStore for notebooks: how they show it, and whole tables. Memory: that of all messages.

    Columns are those of `scan`. Damage raises CorruptError; `scan` with events passes over it.
    """

    _repr_html_ = as_html

    def notebook_fields(self) -> dict[str, Any]:
        """What a notebook shows of the store: what `info` says without reading the log."""
        try:
            return self.info(walk_log=False)
        except RmqctlError as error:
            return {"not readable": str(error)}

    def info(self, *, walk_log: bool = True, events: Events = Events()) -> dict[str, Any]:
        """See MessageStore."""
        raise NotImplementedError

    def scan(
        self, columns: Sequence[str] | None = None, begin: int = 0, end: int | None = None, *,
        criteria: Criteria | None = None, views: bool = True,
    ) -> Generator[pa.RecordBatch, None, None]:  # fmt: skip
        """See MessageStore."""
        raise NotImplementedError

    def to_arrow(self, columns: Sequence[str] | None = None, criteria: Criteria | None = None) -> pa.Table:
        """Return messages as a pyarrow.Table. UnsupportedError without pyarrow."""
        from rmqctl.store.scan.schema import arrow_schema, column_names, require_pyarrow

        require_pyarrow()
        import pyarrow as pa

        batches = self.scan(columns, criteria=criteria, views=False)
        return pa.Table.from_batches(batches, arrow_schema(column_names(columns), False))

    def to_pandas(self, columns: Sequence[str] | None = None, criteria: Criteria | None = None) -> Any:
        """Return messages as a pandas.DataFrame. UnsupportedError without pandas."""
        _require("pandas")
        return self.to_arrow(columns, criteria).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, criteria: Criteria | None = None) -> Any:
        """Return messages as a polars.DataFrame. UnsupportedError without polars."""
        return _require("polars").from_arrow(self.to_arrow(columns, criteria))


def _require(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        said = f"this needs {library}, which is not installed here"
        raise UnsupportedError(said, hint=f"pip install {library}") from error
