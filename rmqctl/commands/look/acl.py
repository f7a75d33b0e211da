"""`rmqctl acl`: users of a broker, and what each may do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, output_options, store_options
from rmqctl.formats.errors import NotAStoreError, NotFoundError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.config.accounts import Accounts, Grant

_COLUMNS = ("user", "type", "status", "resource", "actions", "decision", "policy", "sources")
_DROPPABLE = ("policy", "sources")
_ACTIONS = ("PUB", "SUB", "CREATE", "UPDATE", "DELETE", "GET", "LIST")


@click.command(
    epilog="""\b
Examples:
  rmqctl acl -s /data/store
  rmqctl acl -s /data/store -t Orders --action PUB --from 10.0.0.7      who may send, and by which entry
  rmqctl acl /opt/rocketmq/conf                                         plain_acl.yml and acl/*.yml of 4.x
  rmqctl acl -s /data/store --json | jq -r .user | sort -u

Exit code 1: no users, or unusable ones beside the answer (`rmqctl check` names them)."""
)
@click.argument("place", metavar="[STORE|FILE]", required=False, type=click.Path(path_type=Path))
@store_options
@click.option("-t", "--topic", metavar="TOPIC", help="Say who may use this topic.")
@click.option("-g", "--group", metavar="GROUP", help="Say who may use this group.")
@click.option("--action", type=click.Choice(_ACTIONS), help="With -t or -g: the access. [default: PUB, for -g SUB]")
@click.option("--from", "address", metavar="IP", default="127.0.0.1", help="With -t or -g: where the client is.")
@click.option("--secrets", is_flag=True, help="Print passwords.")
@output_options
def acl(
    store: StoreLocation,
    output: Output,
    place: Path | None,
    topic: str | None,
    group: str | None,
    action: str | None,
    address: str,
    secrets: bool,
) -> int:
    """List users of a broker and what each may do.

    Users and ACLs of 5.3 and later are in config/users and config/acls, those of 4.x in conf/plain_acl.yml. A super
    user may do everything. Of several matching entries, the most specific one decides.
    """
    from rmqctl.output.outcome import tell_answer
    from rmqctl.store.config.accounts import account_problems
    from rmqctl.store.files.remote import as_written

    if topic is not None and group is not None:
        raise click.UsageError("-t and -g cannot be used together")
    location = store if place is None else store._replace(path=place)
    path, accounts = as_written(location.path), _accounts(location)
    is_asked = topic is not None or group is not None
    columns = [*_COLUMNS, *(["password"] if secrets else [])]

    problems = list(account_problems(accounts))

    def ask(events: Events) -> Iterator[dict[str, Any]]:
        for problem in problems:
            output.talk(f"{path}: {problem.text}")
        if is_asked:
            kind, name = ("TOPIC", topic or "") if topic is not None else ("GROUP", group or "")
            yield from _who(accounts, (kind, name, action or ("PUB" if kind == "TOPIC" else "SUB")), address, secrets)
        else:
            yield from _rows(accounts, secrets)

    code = tell_answer(output, columns, ask, NotFoundError("there are no users", file=path), _DROPPABLE)
    is_unusable = any(problem.kind == "unusable" for problem in problems)
    return exit_codes.DAMAGE_OR_NOTHING if is_unusable and code == exit_codes.OK else code


def _accounts(location: StoreLocation) -> Accounts:
    """Return the users of a store, at a server too, of a folder conf/ or of a file."""
    from rmqctl.opening import open_store
    from rmqctl.store.config.accounts import accounts_of, accounts_of_files
    from rmqctl.store.files.remote import as_written

    path = location.path
    if path.is_file():
        return accounts_of_files(path)
    try:
        with open_store(location) as opened:
            return accounts_of(opened.files.root)
    except NotAStoreError:
        if not path.is_dir():
            raise
        return accounts_of(path)
    except NotFoundError as error:
        error.file = as_written(path)
        raise


def _row(accounts: Accounts, name: str, grant: Grant | None, secrets: bool) -> dict[str, Any]:
    user = accounts.users.get(name)
    row: dict[str, Any] = {
        "user": name,
        "type": None if user is None else user.type,
        "status": None if user is None else user.status,
        "resource": None if grant is None else grant.resource,
        "actions": None if grant is None else ",".join(grant.actions),
        "decision": None if grant is None else grant.decision,
        "policy": None if grant is None else grant.policy,
        "sources": None if grant is None else ",".join(grant.sources),
    }
    if user is not None and user.is_super:
        row |= {"resource": "*", "actions": "ALL", "decision": "ALLOW"}
    return {**row, "password": None if user is None else user.password} if secrets else row


def _rows(accounts: Accounts, secrets: bool) -> Iterator[dict[str, Any]]:
    for name in sorted({*accounts.users, *accounts.grants}):
        user = accounts.users.get(name)
        grants = [] if user is not None and user.is_super else accounts.grants.get(name, [])
        if not grants:
            yield _row(accounts, name, None, secrets)
        for grant in grants:
            yield _row(accounts, name, grant, secrets)


def _who(accounts: Accounts, access: tuple[str, str, str], address: str, secrets: bool) -> Iterator[dict[str, Any]]:
    """Yield each user with the entry that decides; `decision` DENY without one."""
    kind, name, action = access
    for user in sorted(accounts.users):
        grant = accounts.deciding(user, kind, name, (action,), address)
        is_refused = accounts.refusal(user, kind, name, (action,), address)
        yield {**_row(accounts, user, grant, secrets), "decision": "DENY" if is_refused else "ALLOW"}
