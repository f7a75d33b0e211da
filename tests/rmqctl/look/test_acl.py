"""`rmqctl acl`, and what `check`, `info` and `dump` say of users: a golden of 5.5.0, and a file of 4.x."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.network.remoting.authentication import Guard
from rmqctl.network.remoting.requests import RequestError
from rmqctl.store import Message, MessageStore
from rmqctl.store.config.accounts import accounts_of, accounts_of_files, is_from, without_passwords
from rmqctl.store.rocksdb.database import Database
from tests.goldens import tree_state
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import unpacked

PLAIN = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB   # both
  groupPerms: [groupA=DENY, groupB=PUB|SUB]
- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  admin: true
- accessKey: RocketMQ
  secretKey: another-one
- accessKey: short
  secretKey: x
dataVersion: [{counter: 1, timestamp: 1600000000000, stateVersion: 0}]
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the users of the golden."""
    users = unpacked("v55-auth", tmp_path / "golden")
    with MessageStore.open(tmp_path / "store", "rw", create=True) as made:
        made.put(Message("Events", b"x"))
    for name in ("users", "acls"):
        shutil.copytree(users / "config" / name, tmp_path / "store" / "config" / name)
    return tmp_path / "store"


def test_users_and_what_they_may_do(store: Path) -> None:
    before = tree_state(store)
    done = run("acl", "-s", store, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert "secret" not in done.out + done.err
    assert [(row["user"], row["resource"], row["actions"], row["decision"]) for row in rows] == [
        ("admin", "*", "ALL", "ALLOW"),
        ("app", "Topic:Orders", "PUB,SUB", "ALLOW"),
        ("app", "Topic:Audit*", "ALL", "DENY"),
        ("app", "Group:g-orders", "SUB", "ALLOW"),
        ("app", "*", "SUB", "ALLOW"),
        ("retired", "*", "SUB", "ALLOW"),
    ]
    told = run("acl", "-s", store, "--json", "--secrets")
    assert {json.loads(line)["password"] for line in told.out.splitlines()} == {"secret-1", "secret-2", "secret-3"}
    assert run("acl", store / "nothing").code != 0
    assert tree_state(store) == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-t", "Orders", "--from", "10.1.1.1"], ["ALLOW", "ALLOW", "DENY"]),
        (["-t", "Orders", "--from", "11.1.1.1"], ["ALLOW", "DENY", "DENY"]),
        (["-t", "AuditX", "--action", "SUB"], ["ALLOW", "DENY", "DENY"]),
        (["-t", "Other", "--action", "SUB"], ["ALLOW", "ALLOW", "DENY"]),
        (["-g", "g-orders", "--from", "192.168.1.9"], ["ALLOW", "ALLOW", "DENY"]),
    ],
)
def test_who_may(store: Path, words: list[str], expected: list[str]) -> None:
    done = run("acl", "-s", store, "--json", *words)
    assert [json.loads(line)["decision"] for line in done.out.splitlines()] == expected


def test_no_password_leaves_by_another_verb(store: Path) -> None:
    for name in ("users", "acls"):
        for file in sorted((store / "config" / name).glob("0*")):
            for flags in ([], ["--json"]):
                assert "secret-" not in run("dump", file, *flags).out
    info = run("info", "-s", store)
    assert "3 users" in info.out
    assert "2 ACLs" in info.out
    assert without_passwords('{"password":"a\\"b","x":1}') == '{"password":"***","x":1}'


def _codes(store: Path) -> set[str]:
    with MessageStore.open(store) as opened:
        return {finding.code for finding in opened.check() if finding.code.startswith("RMQ-ACL")}


def test_check_names_what_is_unusable(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _codes(store) == set()
    (store / "config/topics.json").write_text('{"topicConfigTable":{"Events":{}}}')
    assert _codes(store) == {"RMQ-ACL-005"}
    (store / "config/acls").rename(store / "acls")
    assert _codes(store) == {"RMQ-ACL-004"}
    (store / "acls").rename(store / "config/acls")
    (store / "config/users").rename(store / "users")
    assert _codes(store) == {"RMQ-ACL-002", "RMQ-ACL-003", "RMQ-ACL-005"}
    (store / "users").rename(store / "config/users")
    monkeypatch.setattr(Database, "scan", lambda self, family: iter([(b"User:admin", b"no JSON")]))
    assert _codes(store) == {"RMQ-ACL-001", "RMQ-ACL-003"}


def test_a_file_of_4_x(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(PLAIN)
    accounts = accounts_of_files(tmp_path / "plain_acl.yml")
    assert accounts == accounts_of(tmp_path)._replace(place=tmp_path / "plain_acl.yml")
    assert list(accounts.users) == ["RocketMQ", "rocketmq2", "short"]
    assert [(problem.kind, "RocketMQ" in problem.text) for problem in accounts.problems] == [
        ("twice", True),
        ("unusable", False),
    ]
    assert (accounts.exempt, accounts.exempt_users) == (("10.10.103.*",), {"rocketmq2": "192.168.1.*"})
    allowed = {
        (kind, name, action): not accounts.refusal("RocketMQ", kind, name, (action,), "1.2.3.4")
        for kind, name in (
            ("TOPIC", "topicA"),
            ("TOPIC", "topicB"),
            ("TOPIC", "x"),
            ("GROUP", "groupA"),
            ("GROUP", "x"),
        )
        for action in ("PUB", "SUB")
    }
    assert [key for key, is_allowed in allowed.items() if is_allowed] == [
        ("TOPIC", "topicB", "PUB"),
        ("TOPIC", "topicB", "SUB"),
        ("GROUP", "x", "SUB"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "accounts:\n  - [\n\tx",
        "accounts: " + "[" * 100_000,
        "- a list",
        "a: &a [x, x]\naccounts: [*a, *a]\n",
        "\0",
        "accounts: !!python/object/apply:os.system [true]",
    ],
)
def test_a_file_that_is_no_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "plain_acl.yml").write_text(text)
    done = run("acl", tmp_path / "plain_acl.yml")
    assert done.code not in (0, 70)
    assert "plain_acl.yml" in done.err


def test_yaml_as_brokers_read_it(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(
        "accounts:\n- {accessKey: app-user, secretKey: 12345678, admin: yes, groupPerms: ['g=SUB']}\n"
        "- accessKey: other-user\n  secretKey: 'a # b'   # a comment\n  topicPerms: !!null\n  defaultTopicPerm: [PUB]\n"
    )
    accounts = accounts_of_files(tmp_path / "plain_acl.yml")
    found = [(one.name, one.is_super, one.password) for one in accounts.users.values()]
    assert found == [("app-user", True, "12345678"), ("other-user", False, "a # b")]
    assert [grant.resource for grant in accounts.grants["app-user"]] == ["Group:g"]


def test_a_folder_without_users_and_no_folder(tmp_path: Path) -> None:
    for place, code in ((tmp_path, 1), (tmp_path / "gone", 3)):
        done = run("acl", place)
        assert done.code == code, done.err
        assert str(place) in done.err


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("10.0.0.0/8", "10.9.8.7", True),
        ("10.0.0.0/8", "11.9.8.7", False),
        ("192.168.0.*", "192.168.0.9", True),
        ("192.168.0.{1,2}", "192.168.0.2", True),
        ("192.168.0.{1,2}", "192.168.0.3", False),
        ("192.168.0-10.1", "192.168.7.1", True),
        ("192.168.0-10.1", "192.168.11.1", False),
        ("*", "::1", True),
        ("2001:db8:0:0:0:0:0:*", "2001:db8:0:0:0:0:0:5", True),
        ("not/anything", "1.2.3.4", False),
    ],
)
def test_addresses(pattern: str, address: str, expected: bool) -> None:
    assert is_from(address, pattern) is expected


ADDRESSES = (
    *("10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.2.7", "10.9.9.1", "192.168.3.4", "127.0.0.1"),
    *("fe80:0:0:0:0:0:0:1", "fe80::1", "fe80:0:0:0:0:0:0:3", "::1"),
)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*", "11111111111"),
        ("*.*.*.*", "11111111111"),
        ("10.0.0.1", "10000000000"),
        ("10.0.0.*", "11100000000"),
        ("10.0.0.1-5", "11100000000"),
        ("10.0.1-5.*", "00010000000"),
        ("10.0.0.{1,2}", "11000000000"),
        ("10.0.0.1,10.0.0.2", "11000000000"),
        ("fe80::*", "00000001110"),
        ("fe80:0:0:0:0:0:0:1", "00000001100"),
        ("FE80::1", "00000001100"),
        ("fe80::1-5", "00000000000"),
        ("fe80:0:0:0:0:0:0:{1,2}", "00000001100"),
        ("fe80:0:0:0:0:0:0:1-5", "00000001110"),
        ("::1", "00000000001"),
        ("", "00000000000"),
    ],
)
def test_addresses_as_4_9_7_finds_them(pattern: str, fits: str) -> None:
    """RemoteAddressStrategyFactory of 4.9.7 said so of each."""
    assert "".join(str(int(is_from(address, pattern))) for address in ADDRESSES) == fits


@pytest.mark.parametrize(
    "pattern",
    ["10.0.*", "10.0.0.{1,x}", "10.0.0.5-1", "10.0.0.0-300", "999.1.1.1", "10.0.0.", "1.2.3", "10.0.0.01", "10.0.0.{1"],
)
def test_a_pattern_that_brokers_refuse_is_named(pattern: str, tmp_path: Path) -> None:
    text = f"globalWhiteRemoteAddresses: ['{pattern}']\naccounts: [{{accessKey: RocketMQ, secretKey: secret-1}}]\n"
    (tmp_path / "plain_acl.yml").write_text(text, encoding="utf-8")
    done = run("acl", tmp_path / "plain_acl.yml")
    assert (done.code, f"'{pattern}' is not a pattern" in done.err) == (1, True), done.err


@pytest.mark.parametrize(
    ("permission", "allowed"),
    [
        ("PUB", "PUB"),
        (" SUB ", "SUB"),
        ("SUB|PUB", "PUB,SUB"),
        *((word, "") for word in ("DENY", "pub", "ANY", "PUB,SUB", "PUB|PUB", "PUB | SUB", "deny")),
    ],
)
def test_a_word_that_is_no_permission_denies(permission: str, allowed: str, tmp_path: Path) -> None:
    """As in a broker of 4.x: what is not understood is no door."""
    text = (
        f"accounts:\n- accessKey: RocketMQ\n  secretKey: secret-1\n  topicPerms: ['Orders={permission}']\n"
        f"  defaultTopicPerm: '{permission}'\n"
    )
    (tmp_path / "plain_acl.yml").write_text(text, encoding="utf-8")
    accounts = accounts_of_files(tmp_path / "plain_acl.yml")
    for topic in ("Orders", "Other"):
        may = [
            action for action in ("PUB", "SUB") if not accounts.refusal("RocketMQ", "TOPIC", topic, (action,), "::1")
        ]
        assert ",".join(may) == allowed


@pytest.mark.parametrize("permissions", ["[Orders]", "['Orders=']", "['=PUB']", "['a=b=PUB']", "a=PUB", "[[x]]"])
def test_a_permission_that_brokers_refuse_grants_nothing(permissions: str, tmp_path: Path) -> None:
    text = f"accounts:\n- accessKey: RocketMQ\n  secretKey: secret-1\n  topicPerms: {permissions}\n"
    (tmp_path / "plain_acl.yml").write_text(text, encoding="utf-8")
    done = run("acl", tmp_path / "plain_acl.yml", "--json")
    assert (done.code, "is not like topicA=PUB" in done.err) == (1, True)
    assert done.objects[0]["resource"] is None


def test_the_last_permission_of_a_topic_counts(tmp_path: Path) -> None:
    text = "accounts:\n- accessKey: RocketMQ\n  secretKey: secret-1\n  topicPerms: [a=DENY, a=SUB]\n"
    (tmp_path / "plain_acl.yml").write_text(text, encoding="utf-8")
    rows = run("acl", tmp_path / "plain_acl.yml", "--json").objects
    assert [(row["actions"], row["decision"]) for row in rows] == [("SUB", "ALLOW")]


def test_an_account_with_short_keys_is_let_in_nowhere(tmp_path: Path) -> None:
    text = "accounts:\n- {accessKey: short, secretKey: x, admin: true, whiteRemoteAddress: '*'}\n"
    (tmp_path / "plain_acl.yml").write_text(text, encoding="utf-8")
    done = run("acl", tmp_path / "plain_acl.yml")
    assert (done.code, "cannot log in" in done.err) == (1, True)
    guard = Guard(accounts_of_files(tmp_path / "plain_acl.yml"), "DefaultCluster")
    assert not guard.is_exempt("short", "127.0.0.1:1")
    with pytest.raises(RequestError, match="disabled"):
        guard.authenticate("short", "x", b"x")
    any_port = ("--listen", "127.0.0.1:0", "--namesrv", "127.0.0.1:0")
    done = run("serve", "--ephemeral", *any_port, "--auth", tmp_path / "plain_acl.yml")
    assert (done.code, "no user can log in" in done.err) == (5, True), done.err
