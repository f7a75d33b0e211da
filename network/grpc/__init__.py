"""RocketMQ's gRPC service over a broker of this process: what its proxy serves in local mode."""

import os

# what goes wrong is told as every error is; lines of the library's own say it a second time
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
