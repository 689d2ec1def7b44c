"""``python -m``: a Ray cluster of this machine alone, which lasts as long as this process.

Reads a ``ClusterOrder``, reports ``ClusterReady``, and ends with its standard input.
"""

import signal
import sys
import time
from typing import Any

from services.generator.backends.verl.environment import LOOPBACK
from services.generator.backends.verl.messages import (
    ClusterOrder,
    ClusterReady,
    Failed,
    Phase,
    Reports,
)
from shared.errors import ConfigError, PlumblineError, ServiceError

# Nothing large goes through Ray's object store here.
_OBJECT_STORE_BYTES = 128 << 20


def main() -> int:
    reports = Reports()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    order = ClusterOrder.model_validate_json(sys.stdin.readline())
    try:
        _keep(order, reports)
    except PlumblineError as error:
        reports.send(Failed(reason=str(error), refused=isinstance(error, ConfigError)))
        return error.exit_code
    return 0


def _keep(order: ClusterOrder, reports: Reports) -> None:
    try:
        import ray
    except ImportError as error:
        raise ServiceError(f"Ray is not installed here ({error}); see docs/generation.md") from None
    began = time.monotonic()
    try:
        context: Any = ray.init(
            address="local",
            num_cpus=order.cpus,
            num_gpus=order.gpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _node_ip_address=LOOPBACK,
            _temp_dir=order.folder,
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # Ray has put its own in place
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if gpus < order.needed:
            raise ConfigError(
                f"asked for {order.needed} GPUs (trainer.n_gpus_per_node), and there are {gpus} "
                "on this machine"
            )
        reports.send(Phase(phase="ray", seconds=round(time.monotonic() - began, 2)))
        reports.send(ClusterReady(address=context.address_info["gcs_address"]))
        sys.stdin.read()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
