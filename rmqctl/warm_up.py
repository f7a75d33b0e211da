"""Compiles everything that is compiled when it is first used, so that no command has to: `python -m rmqctl.warm_up`.

`make install` runs it. The machine code is kept where numba keeps it: beside the sources, or in the user's cache
directory (see `compiling.kernel`).
"""

from __future__ import annotations

from rmqctl.store.columns.engine import engine
from rmqctl.store.columns.frames import frame_writer
from rmqctl.store.survey import index_entries, run_units
from rmqctl.store.write.bulk import bulk_kernels


def warm_up() -> bool:
    """Load every kernel there is; whether anything is compiled here."""
    if engine().walk_window is None:
        return False
    frame_writer()
    bulk_kernels.bulk_kernels()
    index_entries.kernels()
    run_units.kernels()
    try:
        from rmqctl.messages.line_columns import reader_of_lines
        from rmqctl.messages.text_engine import text_kernels
        from rmqctl.store.scan.property_engine import compiled_columns
        from rmqctl.store.write.bulk.property_join import join_kernel
    except ImportError:
        return True  # without pyarrow there is nothing to use these for
    compiled_columns()
    join_kernel()
    text_kernels()
    reader_of_lines()
    return True


if __name__ == "__main__":
    warm_up()
