"""The message classes of gRPC from the official Python client, without the log folder that it makes."""

from __future__ import annotations

import logging
import sys
import types

import pytest

pytest.importorskip("grpc")
_LOG = "rocketmq.v5.log"
if _LOG not in sys.modules:
    module = types.ModuleType(_LOG)
    module.logger = logging.getLogger("rocketmq-python-client")  # type: ignore[attr-defined]
    sys.modules[_LOG] = module
pytest.importorskip("rocketmq")

from rocketmq.grpc_protocol import service_pb2  # noqa: E402

__all__ = ["service_pb2"]
