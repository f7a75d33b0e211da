"""Compiles everything that is compiled when it is first used, so that no command has to: `python -m rmqctl.warm_up`.

`make install` runs it. The machine code is kept where numba keeps it: beside the sources, or in the user's cache
directory (see `compiling.kernel`).
"""

from __future__ import annotations

from store import run_units
from store.columns.engine import engine
from store.columns.frames import frame_writer
from store.mend import index_entries
from store.write import bulk_kernels


def warm_up() -> bool:
    """Load every kernel there is; whether anything is compiled here."""
    if engine().walk_window is None:
        return False
    frame_writer()
    bulk_kernels.bulk_kernels()
    index_entries.kernels()
    run_units.kernels()
    try:
        from rmqctl.line_columns import reader_of_lines
        from rmqctl.text_engine import text_kernels
        from store.scan.property_engine import compiled_columns
        from store.write.property_join import join_kernel
    except ImportError:
        return True  # without pyarrow there is nothing to use these for
    compiled_columns()
    join_kernel()
    text_kernels()
    reader_of_lines()
    return True


if __name__ == "__main__":
    warm_up()
