"""All hostile stores by name: each is a function that fills an empty directory."""

from __future__ import annotations

from tests.hostile import in_files, in_frames
from tests.hostile.making import ONLY_LOOKED_AT, REGISTER

__all__ = ["CORPUS", "ONLY_LOOKED_AT", "in_files", "in_frames"]

CORPUS = REGISTER
"""Complete, because both modules of makers are imported here."""
