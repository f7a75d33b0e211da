"""Every command of mqadmin at the real servers and at `serve --as VERSION`, over copies of one store, line by line.

What is printed and what is thrown has to be the same but for times, ids and addresses. Where it is not, `_KNOWN` says
why; what differs without being there fails, and so does what is there and does not differ.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.goldens import golden, properties
from tests.interop.admin_commands import LEFT_OUT, READING, WRITING
from tests.interop.brokers import SECONDS, SMALL, real_broker
from tests.interop.test_frames import GOLDEN, wait_for_both
from tests.interop.toolchain import SOURCES, Toolchain, Unavailable, run, servers
from tests.network.serving import serving
from tests.processes import SHORT_LIVED_JVM

pytestmark = pytest.mark.interop

_NUMBERS = frozenset(
    "sendMessage sendMsgStatus checkMsgSendRT clusterList statsAll consumeMessage getColdDataFlowCtrInfo".split()
)
"""Commands whose numbers are of moments, sizes and rates."""
_VALUES_AFTER = {"brokerStatus": ":", "getBrokerConfig": "=", "getNamesrvConfig": "="}
"""Commands that print a value for each key, and what is between the two."""
_OWN = re.compile(
    "bindAddress|(haL|l)istenPort|namesrvAddr|rocketmqHome|.*Path(RootDir|CommitLog)?|bootTimestamp|runtime|brokerVersion|"
    "commitLogDirCapacity|.*DiskRatio.*|(put|get)MessageEntireTimeMax|putMessageDistributeTime|putLatency99.?|remainHowManyDataToFlush|"
    "(put|get(Found|Miss|Total|Transf.*)).*Tps|queryThreadPoolQueueCapacity"
)
"""Keys whose values are each server's own: addresses, places, moments, speeds; a broker of RocketMQ looks for POP's
checkpoints all the time, which counts as reads without a find; and one thread answers all slow requests of ours."""

_OF_4 = {
    "commitLogMaxOffset|putMessage(AverageSize|SizeTotal)": "a delayed copy ends with a separator, as of 5.x",
    "earliestMessageTimeStamp": "4.9 reads 8 MiB for it, and has -1 where a commitlog file is smaller",
}
"""Keys of brokerStatus whose values differ from those of 4.9 on purpose, with the reason."""

_CLEANS = "this broker removes no files without --clean"
_NO_EFFECT = "what would have no effect here is an error, where a broker says 0"
_AUTHENTICATION = "there is no authentication: requests of users and ACLs are not served"
_STATIC = "static topics are not served"
_DELETED = "a topic is deleted without a timer wheel, too, where a broker fails with 1"
_IN_ALL = {"cleanExpiredCQ -b BROKER": _CLEANS, "deleteExpiredCommitLog -b BROKER": _CLEANS}
_IN_5 = {
    **_IN_ALL,
    "checkRocksdbCqWriteProgress -c DefaultCluster -t Events": _NO_EFFECT,
    "updateColdDataFlowCtrGroupConfig -b BROKER -g g-events -v 1": _NO_EFFECT,
    "setCommitLogReadAheadMode -b BROKER -m 1": _NO_EFFECT,
    "getUser -b BROKER -u somebody": _AUTHENTICATION,
    "listUser -b BROKER": _AUTHENTICATION,
    "getAcl -b BROKER -s User:somebody": _AUTHENTICATION,
    "listAcl -b BROKER": _AUTHENTICATION,
    "createUser -b BROKER -u somebody -p secret": _AUTHENTICATION,
    "updateUser -b BROKER -u somebody -p other": _AUTHENTICATION,
    "deleteUser -b BROKER -u somebody": _AUTHENTICATION,
    "createAcl -b BROKER -s User:somebody -r Topic:Events -a Pub -d Allow": _AUTHENTICATION,
    "updateAcl -b BROKER -s User:somebody -r Topic:Events -a Pub -d Allow": _AUTHENTICATION,
    "deleteAcl -b BROKER -s User:somebody": _AUTHENTICATION,
    "updateStaticTopic -t Static -qn 4 -b broker-a": _STATIC,
    "remappingStaticTopic -t Static -b broker-a": _STATIC,
    "deleteTopic -c DefaultCluster -t New": _DELETED,
    "topicList #2": _DELETED,
    "topicRoute -t New #2": _DELETED,
}
_KNOWN: dict[str, dict[str, str]] = {
    "4.9.8": {
        **_IN_ALL,
        # brokers run as 4.9.7 here
        "getBrokerConfig -b BROKER": "configBlackList came with 4.9.8",
        "getNamesrvConfig": "configBlackList came with 4.9.8",
        "clusterAclConfigVersion -b BROKER": _AUTHENTICATION,
        "getAclConfig -b BROKER": _AUTHENTICATION,
        "updateAclConfig -b BROKER -a accessKey1 -s secretKey1": _AUTHENTICATION,
        "deleteAclConfig -b BROKER -a accessKey1": _AUTHENTICATION,
        "updateGlobalWhiteAddr -b BROKER -g 10.0.0.1": _AUTHENTICATION,
    },
    "5.3.3": _IN_5,
    "5.5.0": {**_IN_5, "getBrokerLiteInfo -b BROKER": "lite topics are not served"},
}


def _sweep(
    tools: Toolchain, folder: Path, namesrv: str, broker: str, release: str
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of all commands, and the lines of each command line, which gets a number when it comes again."""
    (folder / "conf").mkdir(parents=True)
    # 4.x does nothing without it
    shutil.copyfile(SOURCES / "logback.xml", folder / "conf" / "logback_tools.xml")
    topics = '[{"topicName":"Listed","readQueueNums":2,"writeQueueNums":2,"perm":6}]'
    (folder / "topics.json").write_text(topics, encoding="ascii")
    (folder / "groups.json").write_text('[{"groupName":"g-listed"}]', encoding="ascii")
    wanted = [line for line in f"{READING}{WRITING}".splitlines() if line]
    lines = [line.replace("BROKER", broker).replace("FOLDER", str(folder)) for line in wanted]
    commands = folder / "commands"
    commands.write_text("".join(f"{line} -n {namesrv}\n" for line in lines), encoding="ascii")
    options = [*SHORT_LIVED_JVM, "-Djava.security.manager=allow", f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]
    options.append(f"-Drocketmq.home.dir={folder}")
    done = run([tools.java, *options, "-cp", tools.classpath, "rmqctl.clients.Sweep", commands], 2 * SECONDS)
    assert done.returncode == 0, done.stderr
    names: list[str] = []
    found: dict[str, list[str]] = {}
    # logback may tell of itself before the first command
    shown: list[str] = []
    following = iter(wanted)
    for line in done.stdout.splitlines():
        if line.startswith("name "):
            names.append(line.removeprefix("name "))
        elif line.startswith("== "):
            command = next(following)
            count = sum(one.partition(" #")[0] == command for one in found)
            shown = found.setdefault(command if not count else f"{command} #{count + 1}", [])
        else:
            shown.append(line.replace(broker, "BROKER").replace(namesrv, "NAMESRV").replace(str(folder), "FOLDER"))
    assert next(following, None) is None
    return names, {command: _alike(command.partition(" ")[0], shown, release) for command, shown in found.items()}


def _alike(name: str, lines: list[str], release: str) -> list[str]:
    """Lines in order, with what is the same in the place of times, ids and addresses."""
    alike = []
    for line in lines:
        if "CLIENT_INNER_PRODUCER" in line:  # mqadmin's own, which is gone soon
            continue
        if name in _VALUES_AFTER:
            key, _, value = (part.strip() for part in line.removeprefix("out ").partition(_VALUES_AFTER[name]))
            is_own = _OWN.fullmatch(key) or (release == "4.9.8" and re.fullmatch("|".join(_OF_4), key))
            value = "" if is_own else re.sub(r"V4_9_[78]", "V4_9", value)
            text = f"{re.sub('/.*commitlog', '', key)} {value}"
        else:
            text = re.sub(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:.]\d+)?", "TIME", line)
            text = re.sub(r"\b\d{13}\b", "MS", text)
            text = re.sub(r"\b[0-9A-F]{32,58}\b", "ID", text)
            text = re.sub(r"127\.0\.0\.1:\d+", "CLIENT", text)
            text = re.sub(r"V4_9_[78]", "V4_9", text)
        if name in _NUMBERS:
            text = re.sub(r"\d+", "N", text)
        # the order of keys is that of a hash
        alike.append(" ".join(text.split()).rstrip(","))
    return sorted(alike)


def test_every_command_is_asked_or_left_out_for_a_reason() -> None:
    """Held against what each mqadmin has by the sweep itself."""
    asked = {line.split(" ")[0] for line in f"{READING}{WRITING}".split("\n") if line}
    assert asked & LEFT_OUT.keys() == set()
    assert all(LEFT_OUT.values())


@pytest.mark.parametrize(("version", "release"), [("5.3.3", "5.3.3"), ("4.9.7", "4.9.8"), ("5.5.0", "5.5.0")])
def test_mqadmin_shows_the_same_of_both(version: str, release: str, tmp_path: Path) -> None:
    try:
        tools = servers(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    conf = {
        name.removeprefix("store."): value for name, value in properties(GOLDEN).items() if name.startswith("store.")
    }
    # what is due would be delivered meanwhile
    conf |= {"timerWheelEnable": "false", "transactionCheckInterval": "600000"}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs, ours = golden(GOLDEN, tmp_path / "theirs"), golden(GOLDEN, tmp_path / "ours")
    with real_broker(version, tmp_path / "real", theirs, conf) as real:
        wait_for_both(real.namesrv, real.broker)
        names, expected = _sweep(tools, tmp_path / "of-theirs", real.namesrv, real.broker, release)
    file = tmp_path / "broker.conf"
    # what Serve.java sets
    conf = SMALL | conf | {"cleanFileForciblyEnable": "false", "diskMaxUsedSpaceRatio": "95"}
    conf["fileReservedTime"] = "1000000"
    file.write_text("".join(f"{name}={value}\n" for name, value in conf.items()), encoding="ascii")
    with serving(ours, "--writable", "--as", release, "-c", str(file)) as served:
        wait_for_both(served.namesrv, served.broker)
        _, got = _sweep(tools, tmp_path / "of-ours", served.namesrv, served.broker, release)
        assert served.end() == 0
        assert "Traceback" not in served.errors
    asked = {line.split(" ")[0] for line in expected}
    assert sorted({*names} - asked - LEFT_OUT.keys()) == []
    differing = {command for command in expected if expected[command] != got[command]}
    known = _KNOWN[release]
    for command in sorted(differing - known.keys()):
        one, other = set(expected[command]), set(got[command])
        print(command, *(f"theirs {line}"[:300] for line in sorted(one - other)[:8]), sep="\n    ")
        print("", *(f"ours   {line}"[:300] for line in sorted(other - one)[:8]), sep="\n    ")
    assert sorted(differing - known.keys()) == []
    assert sorted(known.keys() - differing) == []
