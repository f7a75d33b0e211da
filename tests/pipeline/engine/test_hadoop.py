"""Hadoop's settings of servers in the words of fsspec."""

from __future__ import annotations

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.spark_engine import conf_storage_options, parse_storage_options, storage_options


def test_settings_of_s3a() -> None:
    settings = {
        "fs.s3a.endpoint": "minio:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": "A",
        "fs.s3a.secret.key": "S",
        "fs.s3a.session.token": "T",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "eu-central-1",
        "dfs.namenode.http-address": "names:50070",
        "fs.s3a.block.size": "32M",
    }
    assert storage_options(settings) == {
        "s3": {
            "key": "A",
            "secret": "S",
            "token": "T",
            "endpoint_url": "http://minio:9000",
            "client_kwargs": {"region_name": "eu-central-1"},
            "config_kwargs": {"s3": {"addressing_style": "path"}},
        },
        "webhdfs": {"port": 50070},
    }


def test_what_says_nothing_and_what_is_anonymous() -> None:
    assert storage_options({}) == {}
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    conf = {"spark.hadoop.fs.s3a.aws.credentials.provider": provider, "fs.s3a.access.key": "not Hadoop's"}
    assert conf_storage_options(conf) == {"s3": {"anon": True}}
    assert storage_options({"fs.s3a.endpoint": "s3.eu.example"}) == {"s3": {"endpoint_url": "https://s3.eu.example"}}


@pytest.mark.parametrize("text", ["", "[]", '{"s3": 1}', "{"])
def test_what_is_no_object_of_objects_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="storage_options"):
        parse_storage_options(text)
