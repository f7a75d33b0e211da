"""Opens the store that a command names, with the broker.conf that goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.options import StoreLocation

if TYPE_CHECKING:
    from store.config import StoreConfig
    from store.store_files import StoreFiles


def read_config(location: StoreLocation) -> StoreConfig:
    """Settings of the broker.conf named with -c, RocketMQ's defaults without."""
    from store.config import StoreConfig, read_broker_conf

    return read_broker_conf(location.config_path) if location.config_path else StoreConfig()


def open_store(location: StoreLocation) -> StoreFiles:
    """The store, opened for reading; NotAStoreError, UnreadableError or UsageError as they come."""
    from store.store_files import StoreFiles

    return StoreFiles(location.path, read_config(location))
