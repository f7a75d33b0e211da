"""Which topics are meant: by name, by pattern, and without those that a broker has for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from rmqctl.store.config.topic_names import is_brokers_own

# none of them may stand in a topic (TopicValidator#validateTopic), so whoever writes one means a pattern
_OF_PATTERNS = "*?["


def is_pattern(name: str) -> bool:
    """Whether `name` is a pattern: `*`, `?` and `[a-z]` as a shell has them."""
    return any(character in name for character in _OF_PATTERNS)


class TopicFilter:
    """Topics by name or pattern. No name at all means every topic, without the system's unless `system_topics`."""

    def __init__(self, names: Iterable[str] = (), *, system_topics: bool = True) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.system_topics = system_topics
        self._exact = frozenset(name for name in self.names if not is_pattern(name))
        patterns = [translate(name) for name in self.names if is_pattern(name)]
        self._pattern = re.compile("|".join(patterns)) if patterns else None
        self._known: dict[str, bool] = {}

    @classmethod
    def of_one(cls, topic: str) -> TopicFilter:
        """That topic alone, whatever characters it has: a damaged store may name any."""
        made = cls()
        made.names, made._exact = (topic,), frozenset((topic,))
        return made

    @property
    def is_all(self) -> bool:
        """Whether every topic is meant."""
        return not self.names and self.system_topics

    @property
    def only(self) -> str | None:
        """The one topic that is meant; None where it may be another one, too."""
        return self.names[0] if len(self.names) == 1 and self._exact else None

    def matches(self, topic: str) -> bool:
        """Whether `topic` is meant. A system topic that is named without a pattern is meant in any case."""
        found = self._known.get(topic)
        if found is None:
            # asked for every message, of few topics
            found = self._known[topic] = self._matches(topic)
        return found

    def _matches(self, topic: str) -> bool:
        if topic in self._exact:
            return True
        if not self.system_topics and is_brokers_own(topic):
            return False
        return not self.names or (self._pattern is not None and self._pattern.fullmatch(topic) is not None)

    def unmet(self, topics: Iterable[str]) -> list[str]:
        """The names and patterns of this filter that none of `topics` meets."""
        given = list(topics)
        return [
            name
            for name in self.names
            if not any(map(TopicFilter([name], system_topics=self.system_topics).matches, given))
        ]
