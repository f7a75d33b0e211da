"""Which version of rmqctl this is: noted in exported files and in manifests."""

from __future__ import annotations


def version() -> str:
    """The installed version; `unknown` where it runs from a copy of the source."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("rmqctl")
    except PackageNotFoundError:
        return "unknown"
