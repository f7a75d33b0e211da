"""Which messages a unit or an index entry may point at although the log does not hold them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmqctl.store.columns.batch import Flags, Int64s
from rmqctl.store.survey.log_survey import LogSurvey

IsGone = Callable[[int], bool]


class Gone:
    """Messages before the log's first, which have expired, and those inside damage that stays.

    Knows the damage that `survey` knows at the time it is asked.
    """

    def __init__(self, log_min_offset: int, survey: LogSurvey) -> None:
        self._log_min_offset = log_min_offset
        self._survey = survey

    def __call__(self, physical_offset: int) -> bool:
        """Whether the message at this offset is gone."""
        return physical_offset < self._log_min_offset or self._survey.is_in_damage(physical_offset)

    def mask(self, physical_offsets: Int64s) -> Flags:
        """The same for many."""
        gone: Flags = physical_offsets < self._log_min_offset
        spans = self._survey.tolerated
        if spans:
            # spans are in the order of the log and do not overlap; the first one is for offsets before all
            begins = np.array([-1 << 63, *(span.physical_offset for span in spans)], np.int64)
            ends = np.array([-1 << 63, *(span.end for span in spans)], np.int64)
            span = np.searchsorted(begins, physical_offsets, side="right") - 1
            gone |= physical_offsets < ends[span]
        return gone


def gone_mask(is_gone: IsGone, physical_offsets: Int64s) -> Flags:
    """`is_gone` of many offsets."""
    if isinstance(is_gone, Gone):
        return is_gone.mask(physical_offsets)
    return np.array([is_gone(offset) for offset in physical_offsets.tolist()], np.bool_)
