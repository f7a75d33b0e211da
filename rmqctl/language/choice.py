"""Which language a process speaks: $RMQCTL_LANG, else that of the locale. Loaded only where one says Chinese."""

from __future__ import annotations

import sys
from collections.abc import Mapping

VARIABLE = "RMQCTL_LANG"
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
CHINESE = "zh_CN"
"""The folder of its catalogues. Simplified Chinese, for every locale of Chinese."""
_SAMPLE = "中文，“”"


def wanted(environment: Mapping[str, str]) -> str | None:
    """Return the language that is asked for, as the folder of its catalogues; None for English and all others."""
    own = environment.get(VARIABLE)
    value = own if own else next(filter(None, (environment.get(name) for name in _LOCALE)), "")
    language = value.replace("-", "_").partition(".")[0].partition("@")[0].partition("_")[0]
    return CHINESE if language.lower() == "zh" else None


def can_print() -> bool:
    """Return whether standard output and error take Chinese characters."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                _SAMPLE.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def speak(environment: Mapping[str, str]) -> None:
    """From here on print in the language that is asked for, where the streams take it; else in English."""
    language = wanted(environment)
    if language is not None and can_print():
        from rmqctl.language.speech import Translated
        from rmqctl.output.table import speak_by

        speak_by(Translated(language))
