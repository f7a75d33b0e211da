"""What a Spark session knows of servers (Hadoop's settings) in the words of fsspec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIXES = ("fs.s3a.", "dfs.namenode.http-address")
_SPARK = "spark.hadoop."
_S3 = {"fs.s3a.access.key": "key", "fs.s3a.secret.key": "secret", "fs.s3a.session.token": "token"}
_SECURE = "fs.s3a.connection.ssl.enabled"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def storage_options(settings: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """fsspec's options by scheme (`s3`, `webhdfs`), of settings of Hadoop; {} where they say nothing of servers.

    Roles of a machine, profiles and what else a chain of providers finds need no setting: botocore looks there, too.
    """
    s3: dict[str, Any] = {name: settings[key] for key, name in _S3.items() if settings.get(key)}
    if settings.get("fs.s3a.endpoint"):
        endpoint = settings["fs.s3a.endpoint"]
        scheme = "http" if settings.get(_SECURE, "true").lower() == "false" else "https"
        s3["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if settings.get("fs.s3a.endpoint.region"):
        s3["client_kwargs"] = {"region_name": settings["fs.s3a.endpoint.region"]}
    if settings.get("fs.s3a.path.style.access", "").lower() == "true":
        s3["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if _ANONYMOUS in settings.get("fs.s3a.aws.credentials.provider", ""):
        s3["anon"] = True
    found = {"s3": s3} if s3 else {}
    port = settings.get("dfs.namenode.http-address", "").rpartition(":")[2]
    if port.isdigit() and port != "0":
        found["webhdfs"] = {"port": int(port)}
    return found


def conf_storage_options(conf: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The same of settings of Spark, of which Hadoop's begin with spark.hadoop."""
    return storage_options({name.removeprefix(_SPARK): text for name, text in conf.items() if name.startswith(_SPARK)})


def session_storage_options(session: SparkSession) -> dict[str, dict[str, Any]]:
    """The same of a session, its core-site.xml included."""
    context: Any = session.sparkContext
    found = {}
    iterator = context._jsc.hadoopConfiguration().iterator()
    while iterator.hasNext():
        entry = iterator.next()
        name = str(entry.getKey())
        if name.startswith(_PREFIXES):
            found[name] = str(entry.getValue())
    return storage_options(found)


def session_options(session: SparkSession) -> str:
    """The same as the data source's option `storage_options`."""
    return json.dumps(session_storage_options(session))


def parse_storage_options(text: str) -> dict[str, dict[str, Any]]:
    """The same of JSON: {"s3": {"endpoint_url": …}}. UsageError for what is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise UsageError(
            "storage_options are no JSON object of objects", hint='as {"s3": {"endpoint_url": "http://…"}}'
        )
    return found
