"""Removal of expired files, oldest first, then the files that depend on them."""

from rmqctl.store.clean.cleaner import Cleaner, CleanReport, Unread, clean, clean_locked, unread_before
from rmqctl.store.clean.forecast import Forecast, forecast_clean
from rmqctl.store.clean.options import CleanOptions, DiskUsage, options_from_config
from rmqctl.store.clean.plan import CleanPlan, plan_clean

__all__ = [
    "CleanOptions",
    "CleanPlan",
    "CleanReport",
    "Cleaner",
    "DiskUsage",
    "Forecast",
    "Unread",
    "clean",
    "clean_locked",
    "forecast_clean",
    "options_from_config",
    "plan_clean",
    "unread_before",
]
