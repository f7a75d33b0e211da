"""What a master's broker tells of itself over remoting: where its log begins and ends, how it is configured, and the
tables that a slave asks for (SlaveSynchronize)."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, RemoteError
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.store.config.config import StoreConfig, config_from_properties

SYNC_MASTER = "SYNC_MASTER"
# what the files of a mirror have to be like, and what its queues are made by; never where the master keeps its own
_TAKEN_OVER = (
    "mappedFileSizeCommitLog mappedFileSizeConsumeQueue mapperFileSizeBatchConsumeQueue maxHashSlotNum maxIndexNum "
    "messageIndexEnable messageIndexSafe messageDelayLevel enableConsumeQueueExt mappedFileSizeConsumeQueueExt"
).split()
_TABLES = {
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}
_OF_TOPICS = ("dataVersion", "topicConfigTable")


class MasterFacts(NamedTuple):
    """The commitlog's bounds just now, and the broker's configuration as it told it."""

    min_offset: int
    max_offset: int
    properties: dict[str, str]

    @property
    def is_sync(self) -> bool:
        """Whether it has producers wait for slaves."""
        return self.properties.get("brokerRole") == SYNC_MASTER

    def onto(self, config: StoreConfig) -> StoreConfig:
        """`config` with the sizes of its files, and the rules by which its queues are made. UsageError."""
        told = {key: self.properties[key] for key in _TAKEN_OVER if key in self.properties}
        given = config_from_properties(told, "the master's configuration")
        changed = {name: value for name, value in given._asdict().items() if value != getattr(StoreConfig(), name)}
        return config._replace(**changed)


class MasterBrokerClient:
    """A client that asks a master's broker what its slaves ask."""

    def __init__(self, address: str) -> None:
        """`address`: `host:port` of its remoting port."""
        self._address = address
        self._client = Client("")

    def facts(self) -> MasterFacts:
        """What it is. RemoteError; also for a broker that keeps its log in another way than masters and slaves do."""
        runtime = self._content(RequestCode.GET_BROKER_RUNTIME_INFO, self._client.ask_runtime_info(self._address)).get(
            "table"
        )
        table = runtime if isinstance(runtime, dict) else {}
        answer = self._client.ask(self._address, RequestCode.GET_BROKER_CONFIG)
        properties = {}
        for line in answer.body.decode("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip()
        for key, what in (("enableControllerMode", "a controller"), ("enableDLegerCommitLog", "DLedger")):
            if properties.get(key, "").lower() == "true":
                raise RemoteError(
                    f"{self._address}: its log is replicated by {what} ({key}=true), which is not followed",
                    hint="take a snapshot of its store instead: `rmqctl snapshot`",
                )
        return MasterFacts(
            max(0, self._number(table, "commitLogMinOffset")), self._number(table, "commitLogMaxOffset"), properties
        )

    def _number(self, table: dict[Any, Any], name: str) -> int:
        try:
            return int(table[name])
        except (KeyError, ValueError, TypeError):
            raise RemoteError(f"{self._address} does not tell its {name}") from None

    def tables(self) -> dict[str, dict[Any, Any]]:
        """Content of the files of a broker's config folder by name, offsets first: what is asked for later is younger,
        so no offset counts a message of a topic that is not there. RemoteError where one cannot be had."""
        found = {name: self._content(code, self._client.ask(self._address, code)) for name, code in _TABLES.items()}
        topics = found["topics.json"]
        found["topics.json"] = {name: topics[name] for name in _OF_TOPICS if name in topics}
        return found

    def _content(self, code: RequestCode, answer: RemotingCommand) -> dict[Any, Any]:
        try:
            content = parse_config_json(answer.body.decode("utf-8"))
        except (CorruptError, UnicodeDecodeError) as error:
            raise RemoteError(f"{self._address}: the answer to {code.name} does not parse: {error}") from error
        if not isinstance(content, dict):
            raise RemoteError(f"{self._address}: the answer to {code.name} is no object")
        return content

    def close(self) -> None:
        """End the connection."""
        self._client.close()
