"""Settings of the property tests: no deadlines, because a busy machine is no failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rmqctl", deadline=None)
settings.load_profile("rmqctl")
