"""Plans that no epoch begins past the end of the log (EpochFileCache#truncateSuffixByOffset)."""

from __future__ import annotations

from rmqctl.formats.errors import CorruptError
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.epoch_file import EPOCH_FILE, epoch_bytes, read_epochs
from rmqctl.store.journal.plan import MoveAway, Plan, Staging, install_config
from rmqctl.store.store_files import StoreFiles


def plan_epochs_end(files: StoreFiles, plan: Plan, staging: Staging, log_end: int, *, is_cut: bool) -> None:
    """Plan the epoch file and its backup for a log that ends at `log_end`. Of a log that is cut (`is_cut`), the epoch
    that begins there goes too, as a broker has it. A file without an entry left goes: brokers never write such a one.
    """
    last_start = log_end - 1 if is_cut else log_end
    for path in (files.layout.root / EPOCH_FILE, backup_of(files.layout.root / EPOCH_FILE)):
        try:
            epochs = read_epochs(path)
        except CorruptError:  # a broker passes over it, and `check` names it
            continue
        kept = [epoch for epoch in epochs or [] if epoch.start <= last_start]
        if not epochs or kept == epochs:
            continue
        if kept:
            install_config(plan, staging, path, epoch_bytes(kept))
        else:
            plan.add(MoveAway(path))
