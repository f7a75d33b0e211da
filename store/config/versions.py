"""The versions of RocketMQ that `serve` can name as its own, and what a broker of each answers on the wire."""

from __future__ import annotations

from typing import NamedTuple

# in the order of Java's HashSet, which remarks show
_TYPES_5_0 = ("UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL")
_TYPES_5_4 = ("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL")


class Release(NamedTuple):
    """One version. `number`: its MQVersion, which stands in every header.

    `message_types`: values of the topic attribute message.type; none before 5.0 had attributes. `has_recall`: timed
    messages can be taken back by a handle (5.3.1). `has_tag_queries`: QUERY_MESSAGE asks for tags too (5.4).
    `has_lite_topics`: topics may expire by lite.topic.expiration (5.5). `shows_number`: brokerStatus has brokerVersion
    (not in 5.5).
    """

    name: str
    number: int
    message_types: tuple[str, ...]
    has_recall: bool = False
    has_tag_queries: bool = False
    has_lite_topics: bool = False
    shows_number: bool = True

    @property
    def is_of_4(self) -> bool:
        """Whether the version is older than 5.0."""
        return not self.message_types

    @property
    def text(self) -> str:
        """The version as brokers write it, such as V5_3_3."""
        return f"V{self.name.replace('.', '_')}"


RELEASES = {
    release.name: release
    for release in (
        Release("4.9.8", 409, ()),
        Release("5.3.3", 479, _TYPES_5_0, has_recall=True),
        Release(
            "5.5.0", 513, _TYPES_5_4, has_recall=True, has_tag_queries=True, has_lite_topics=True, shows_number=False
        ),
    )
}
DEFAULT_RELEASE = RELEASES["5.3.3"]
