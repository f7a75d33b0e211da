"""Users of a broker and what they may do: databases of 5.3 and later, plain_acl.yml of 4.x (auth, acl modules)."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.store.files.layout import is_database
from rmqctl.store.files.reading import is_directory, is_file, read_small_file

USERS, ACLS = "users", "acls"
"""Folders of config/ with a RocksDB each."""
PASSWORD = "password"
PLAIN_ACL = "plain_acl.yml"
SUPER, NORMAL = "SUPER", "NORMAL"
ENABLE, DISABLE, UNKNOWN = "ENABLE", "DISABLE", "UNKNOWN"
ALLOW, DENY = "ALLOW", "DENY"
CUSTOM, DEFAULT = "CUSTOM", "DEFAULT"
ANY, CLUSTER, TOPIC, GROUP = "ANY", "CLUSTER", "TOPIC", "GROUP"
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
ALL = "ALL"
_SUBJECT = "User:"
_LARGEST = 16 << 20
_ACTIONS = ("", ALL, "ANY", "PUB", "SUB", "CREATE", "UPDATE", "DELETE", "GET", "LIST")
_RESOURCES = ("", ANY, CLUSTER, "NAMESPACE", TOPIC, GROUP)
_PATTERNS = ("", ANY, LITERAL, PREFIXED)
_ANYWHERE = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_BRACES = re.compile(r"([^{}]*)\{([^{}]*)\}")
_IPV6_PARTS = 8
_NUMBER = r"(?:0|[1-9]\d{0,2})"
_IPV4_PATTERN = re.compile(rf"(?:(?:\*|{_NUMBER}(?:-{_NUMBER})?)(?:\.(?!$)|$)){{4}}", re.ASCII)
_PERMISSIONS = {"PUB": ("PUB",), "SUB": ("SUB",), "PUB|SUB": ("PUB", "SUB"), "SUB|PUB": ("PUB", "SUB")}
_SHORTEST = 6
"""Characters that access and secret keys of 4.x have at least."""


class User(NamedTuple):
    """One user. `password` in clear, as brokers keep it."""

    name: str
    type: str
    status: str
    password: str

    @property
    def is_super(self) -> bool:
        """Return whether ACLs are not asked."""
        return self.type == SUPER


class Grant(NamedTuple):
    """One entry of an ACL. `name`: "" for all of the type. `sources`: address patterns, none for any address."""

    policy: str
    type: str
    pattern: str
    name: str
    actions: tuple[str, ...]
    decision: str
    sources: tuple[str, ...]

    @property
    def resource(self) -> str:
        """Return the resource as mqadmin writes it."""
        if self.type == ANY or self.policy == DEFAULT:
            return "*"
        name = "*" if self.pattern == ANY else f"{self.name}*" if self.pattern == PREFIXED else self.name
        return f"{self.type.capitalize()}:{name}"

    def fits(self, kind: str, name: str, actions: Sequence[str], address: str) -> bool:
        """Return whether the entry says something of an access."""
        if self.policy == CUSTOM and self.type != ANY:
            if self.type != kind or (self.pattern == LITERAL and self.name != name):
                return False
            if self.pattern == PREFIXED and not name.startswith(self.name):
                return False
        has_action = ALL in self.actions or "ANY" in actions or any(one in self.actions for one in actions)
        return has_action and (not self.sources or any(is_from(address, one) for one in self.sources))


class AccountProblem(NamedTuple):
    """What makes a user or an ACL unusable: its kind (see store/check/config.py), what is said, and where."""

    kind: str
    text: str
    place: Path


class Accounts(NamedTuple):
    """Users by name, and the entries of their ACLs, of users that do not exist too. `exempt`: address patterns from
    which everything is allowed (globalWhiteRemoteAddresses). `is_of_4`: from plain_acl.yml."""

    users: dict[str, User]
    grants: dict[str, list[Grant]]
    problems: list[AccountProblem]
    place: Path
    exempt: tuple[str, ...] = ()
    exempt_users: Mapping[str, str] = {}
    is_of_4: bool = False

    def deciding(self, user: str, kind: str, name: str, actions: Sequence[str], address: str) -> Grant | None:
        """Return the entry that decides an access; None where none says anything, which is a refusal
        (AclAuthorizationHandler)."""
        found = [one for one in self.grants.get(user, ()) if one.fits(kind, name, actions, address)]
        custom = [one for one in found if one.policy == CUSTOM]
        return min(custom or found, key=_order, default=None)

    def refusal(self, user: str, kind: str, name: str, actions: Sequence[str], address: str) -> str:
        """Return why an access is refused, in a broker's words; "" where it is allowed."""
        known = self.users.get(user)
        if known is None:
            return f"User:{user} not found."
        if known.status == DISABLE:
            return f"User:{user} is disabled."
        if known.is_super:
            return ""
        grant = self.deciding(user, kind, name, actions, address)
        if grant is not None and grant.decision == ALLOW:
            return ""
        why = "no matched policies." if grant is None else "the decision is deny."
        resource = f"{kind.capitalize()}:{name}" if name else kind.capitalize()
        return f"{_SUBJECT}{user} has no permission to access {resource} from {address}, {why}"


def _order(grant: Grant) -> tuple[bool, int, int, bool]:
    patterns = {LITERAL: 0, PREFIXED: 1}
    return grant.type == ANY, patterns.get(grant.pattern, 2), -len(grant.name), grant.decision == ALLOW


def is_from(address: str, pattern: str) -> bool:
    """Return whether an address fits a pattern: a network, `192.168.0.*`, `192.168.0.{1,2}`, `192.168.0-10.1`, the same
    of IPv6, or several with commas between them."""
    return any(_is_from_one(address, one) for one in _listed(pattern))


def _is_from_one(address: str, pattern: str) -> bool:
    if pattern in (address, *_ANYWHERE):
        return True
    try:
        given = ipaddress.ip_address(address)
        if "/" in pattern:
            return given in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return False
    mark, base = (":", 16) if given.version == 6 else (".", 10)
    wanted, parts = _parts(pattern, mark), given.exploded.split(mark)
    return len(wanted) == len(parts) and all(_fits(*pair, base) for pair in zip(wanted, parts, strict=True))


def _listed(pattern: str) -> list[str]:
    """Return the patterns in one: braces at its end and commas name several."""
    braces = _BRACES.fullmatch(pattern)
    if braces is not None:
        return [braces[1] + one.strip() for one in braces[2].split(",")]
    return [one.strip() for one in pattern.split(",")]


def _parts(pattern: str, mark: str) -> list[str]:
    """Return the parts of a pattern; `::` of IPv6 becomes the zeros it replaces."""
    head, gap, tail = pattern.partition("::")
    if mark == "." or not gap:
        return pattern.split(mark)
    if "-" in pattern:
        return []  # RocketMQ finds no address in such a range
    first, last = ([one for one in part.split(":") if one] for part in (head, tail))
    return [*first, *["0"] * (_IPV6_PARTS - len(first) - len(last)), *last]


def _fits(wanted: str, given: str, base: int) -> bool:
    """Return whether a part of an address fits that of a pattern: any, a number or a range of numbers."""
    low, dash, high = wanted.partition("-")
    try:
        return wanted == "*" or int(low, base) <= int(given, base) <= int(high if dash else low, base)
    except ValueError:
        return False


def _is_pattern_of_4(pattern: str) -> bool:
    """Return whether brokers of 4.x take a pattern (RemoteAddressStrategyFactory). IPv6 is not looked at."""
    wanted = (one for one in _listed(pattern) if one not in _ANYWHERE and ":" not in one)
    return all(_IPV4_PATTERN.fullmatch(one) and _has_ranges(one) for one in wanted)


def _has_ranges(pattern: str) -> bool:
    """Return whether numbers are those of bytes and ranges of them do not go backwards."""
    for part in pattern.split("."):
        numbers = [int(one) for one in part.split("-") if one != "*"]
        if numbers and not numbers[0] <= numbers[-1] <= 0xFF:
            return False
    return True


# ---- 5.3 and later


def has_accounts(config: Path) -> bool:
    """Return whether a folder config/ has users of 5.3 and later. UnreadableError."""
    return is_database(config / USERS) or is_database(config / ACLS)


def account_databases(config: Path) -> list[Path]:
    """Return the RocksDBs with users and ACLs."""
    return [config / name for name in (USERS, ACLS) if is_database(config / name)]


def is_secret_folder(folder: Path) -> bool:
    """Return whether a folder is a RocksDB whose values hold passwords."""
    return folder.name in (USERS, ACLS) and folder.parent.name == "config"


def without_passwords(value: int | str | bytes) -> int | str:
    """Return a value of a user's or an ACL's JSON with its passwords hidden."""
    if isinstance(value, int):
        return value
    text = value if isinstance(value, str) else value.decode("utf-8", "replace")
    return re.sub(r'("password"\s*:\s*)"(?:[^"\\]|\\.)*"', r'\1"***"', text)


def stored_accounts(config: Path) -> Accounts:
    """Read users and ACLs of config/. CorruptError for a damaged database, UnreadableError."""
    accounts = Accounts({}, {}, [], config)
    for key, value in _objects(config / USERS, accounts.problems):
        user = User(
            str(value.get("username") or key), _enum(value.get("userType"), ("", SUPER, NORMAL)),
            _enum(value.get("userStatus"), ("", ENABLE, DISABLE)), str(value.get(PASSWORD) or ""),
        )  # fmt: skip
        if user.name != key or not user.password or UNKNOWN in (user.type, user.status):
            what = "its password is missing" if not user.password else "name, type or status is wrong"
            accounts.problems.append(AccountProblem("unusable", f"user {key!r} cannot log in: {what}", config / USERS))
        accounts.users[key] = user._replace(name=key)
    for key, value in _objects(config / ACLS, accounts.problems):
        name = key.removeprefix(_SUBJECT)
        accounts.grants[name] = list(_grants(value))
        if name not in accounts.users:
            text = f"the ACL of {key!r} belongs to no user"
            accounts.problems.append(AccountProblem("no user", text, config / ACLS))
    return accounts


def _objects(folder: Path, problems: list[AccountProblem]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not is_database(folder):
        return
    from rmqctl.store.rocksdb.database import Database

    for key, value in Database(folder).scan("default"):
        name = key.decode("utf-8", "backslashreplace")
        try:
            content = json.loads(value)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            yield name, content
        else:
            problems.append(AccountProblem("unusable", f"the entry of {name!r} is no JSON object", folder))


def _enum(value: Any, names: Sequence[str]) -> str:
    """Return the name of an enum, which 5.5 writes as a number."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < len(names):
        return names[value]
    name = value.upper() if isinstance(value, str) else ""
    return name if name and name in names else UNKNOWN


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _grants(acl: dict[str, Any]) -> Iterator[Grant]:
    for policy in _dicts(acl.get("policies")):
        kind = _enum(policy.get("policyType"), ("", CUSTOM, DEFAULT))
        for entry in _dicts(policy.get("entries")):
            resource, environment = entry.get("resource"), entry.get("environment")
            resource = resource if isinstance(resource, dict) else {}
            sources = environment.get("sourceIps") if isinstance(environment, dict) else None
            actions = entry.get("actions")
            yield Grant(
                kind,
                _enum(resource.get("resourceType"), _RESOURCES) if resource else ANY,
                _enum(resource.get("resourcePattern"), _PATTERNS) if resource else ANY,
                str(resource.get("resourceName") or ""),
                tuple(_enum(one, _ACTIONS) for one in actions) if isinstance(actions, list) else (),
                _enum(entry.get("decision"), ("", ALLOW, DENY)),
                tuple(map(str, sources)) if isinstance(sources, list) else (),
            )


# ---- 4.x and 5.0 to 5.2: files in YAML


def accounts_of_files(path: Path) -> Accounts:
    """Read plain_acl.yml, or the folder conf/ with it and acl/*.yml: of two accounts with one key the first counts.

    Raises: NotFoundError without such a file; CorruptError for one that does not parse; UnreadableError.
    """
    files = [path]
    if is_directory(path):
        files = [one for one in (path / PLAIN_ACL, path / "conf" / PLAIN_ACL) if is_file(one)][:1]
        for folder in (path / "acl", path / "conf" / "acl"):
            files += sorted(one for one in folder.glob("*.y*ml")) if is_directory(folder) else []
    if not files:
        raise NotFoundError("there are no users: neither config/users nor plain_acl.yml", file=path)
    accounts = Accounts({}, {}, [], path)
    exempt: list[str] = []
    exempt_users: dict[str, str] = {}
    for file in files:
        content = read_yaml(file)
        found = _texts(content.get("globalWhiteRemoteAddresses"))
        accounts.problems.extend(_wrong_patterns(found, file))
        exempt += found
        for account in _dicts(content.get("accounts")):
            _take_account(account, file, accounts, exempt_users)
    return accounts._replace(exempt=tuple(exempt), exempt_users=exempt_users, is_of_4=True)


def _take_account(account: dict[str, Any], file: Path, accounts: Accounts, exempt: dict[str, str]) -> None:
    name, secret = _text(account.get("accessKey")), _text(account.get("secretKey"))
    is_short = min(len(name), len(secret)) < _SHORTEST
    if is_short:
        text = f"account {name!r} cannot log in: its keys need at least {_SHORTEST} characters"
        accounts.problems.append(AccountProblem("unusable", text, file))
    if name in accounts.users:
        text = f"account {name!r} is there twice, and the first counts"
        accounts.problems.append(AccountProblem("twice", text, file))
        return
    is_admin = _text(account.get("admin")).lower() == "true"
    accounts.users[name] = User(name, SUPER if is_admin else NORMAL, DISABLE if is_short else ENABLE, secret)
    white = _text(account.get("whiteRemoteAddress"))
    if white and not is_short:
        exempt[name] = white
        accounts.problems.extend(_wrong_patterns([white], file))
    grants: dict[tuple[str, str], Grant] = {}
    for field, kind in (("topicPerms", TOPIC), ("groupPerms", GROUP)):
        given = account.get(field)
        for listed in given if isinstance(given, list) else [] if given is None else [{}]:
            resource, permission = _permission_of_4(_text(listed))
            if resource:  # the last of a topic counts
                grants[kind, resource] = _grant_of_4(kind, LITERAL, resource, permission)
            else:
                text = f"account {name!r}: {field} has an entry that is not like topicA=PUB: brokers refuse the file"
                accounts.problems.append(AccountProblem("unusable", text, file))
    for field, kind in (("defaultTopicPerm", TOPIC), ("defaultGroupPerm", GROUP)):
        if permission := _text(account.get(field)):
            # beside the entries of the type, which count first by their names
            grants[kind, ""] = _grant_of_4(kind, ANY, "", permission)
    accounts.grants[name] = list(grants.values())


def _wrong_patterns(patterns: Sequence[str], file: Path) -> Iterator[AccountProblem]:
    for pattern in patterns:
        if not _is_pattern_of_4(pattern):
            text = f"{pattern!r} is not a pattern of addresses: brokers refuse the file"
            yield AccountProblem("unusable", text, file)


def _permission_of_4(text: str) -> tuple[str, str]:
    """Return resource and permission of `topicA=PUB`; two empty texts of others (Permission#parseResourcePerms)."""
    parts = [part for part in text.split("=") if part]
    return (parts[0].strip(), parts[1]) if len(parts) == 2 else ("", "")


def _grant_of_4(kind: str, pattern: str, name: str, permission: str) -> Grant:
    """Return what a permission grants; every word but four denies (Permission#parsePermFromString)."""
    actions = _PERMISSIONS.get(permission.strip())
    return Grant(CUSTOM, kind, pattern, name, actions or (ALL,), ALLOW if actions else DENY, ())


def read_yaml(file: Path) -> dict[str, Any]:
    """Return the map in a file, with texts as scalars: true and 12 as the texts `true` and `12`.

    Raises: CorruptError for one that does not parse; UnreadableError.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = read_small_file(file, _LARGEST)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, loader)):
            # a few lines of them make a text of any size
            raise CorruptError("it has aliases, which are not read", file=file, hint="write out what they refer to")
        content = yaml.load(data, loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = "" if mark is None else f" at line {mark.line + 1}"
        said = f"it is no YAML{at}: {getattr(error, 'problem', None) or error}"
        raise CorruptError(said, file=file, hint="restore the file from a backup") from error
    if not isinstance(content, dict):
        raise CorruptError("it is no map in YAML", file=file, hint="restore the file from a backup")
    return content


def _texts(value: Any) -> list[str]:
    """Return the scalars of a list as texts."""
    return [text for text in map(_text, value if isinstance(value, list) else []) if text]


def _text(value: Any) -> str:
    """Return a scalar of YAML as RocketMQ takes it for a text; "" for a map or a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else ""


def accounts_of(path: Path) -> Accounts:
    """Read the users of a store, else those of plain_acl.yml there or in conf/; errors as of both."""
    config = path / "config"
    return stored_accounts(config) if has_accounts(config) else accounts_of_files(path)


def account_problems(accounts: Accounts, exists: Callable[[str, str], bool] | None = None) -> Iterator[AccountProblem]:
    """Yield what is unusable. `exists`: whether a topic or group (by its type) is known."""
    yield from accounts.problems
    if not any(one.is_super and one.status == ENABLE for one in accounts.users.values()):
        yield AccountProblem("no super user", "no enabled user is SUPER", accounts.place)
    for name, user in accounts.users.items():
        if user.status == ENABLE and not user.is_super:
            grants = accounts.grants.get(name, [])
            if not any(one.decision == ALLOW and one.actions for one in grants):
                yield AccountProblem("may nothing", f"user {name!r} may do nothing", accounts.place)
    for name, grants in accounts.grants.items():
        for one in grants:
            named = one.policy == CUSTOM and one.pattern == LITERAL and one.type in (TOPIC, GROUP)
            if named and exists is not None and not exists(one.type, one.name):
                text = f"user {name!r} has an entry for {one.resource}, which does not exist"
                yield AccountProblem("unknown name", text, accounts.place)
            if UNKNOWN in (one.policy, one.type, one.pattern, one.decision, *one.actions) or not one.actions:
                text = f"an entry of user {name!r} says nothing: {one.resource}, {one.decision}"
                yield AccountProblem("unusable", text, accounts.place)
