"""Settings of the property tests: no deadlines, because the first example may compile a kernel."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rmqctl", deadline=None)
settings.load_profile("rmqctl")
