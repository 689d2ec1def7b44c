"""The present state, for ``/readyz`` and ``/metrics``."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from services.generator.router.balancer import Balancer
from services.generator.router.keeper import Keeper, State
from services.generator.router.metrics import gauge
from services.generator.router.supervisor import Supervisor


class Gauges(Collector):
    """Values that are read rather than counted; what has no replica yet has none."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self.keepers: tuple[Keeper, ...] = ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "plumbline_generator_requests_queued",
            "Completion requests that wait for a place on a replica.",
            value=self._balancer.queued,
        )
        engines = {str(keeper.rank): keeper.engine for keeper in self.keepers}
        yield gauge(
            "requests_in_flight",
            "Completion requests that a replica is answering.",
            {rank: len(engine.leases) if engine else 0 for rank, engine in engines.items()},
        )
        yield gauge(
            "outstanding_tokens",
            "Estimate of the tokens that a replica still has to read or write.",
            {rank: engine.load if engine else 0 for rank, engine in engines.items()},
        )
        yield gauge(
            "replica_healthy",
            "1 where a replica gets requests.",
            {str(one.rank): float(one.state is State.HEALTHY) for one in self.keepers},
        )


def report(supervisor: Supervisor, balancer: Balancer, model: str) -> Mapping[str, object]:
    """What ``/readyz`` shows."""
    ready = supervisor.ready and not balancer.closed
    return {
        "status": "ok" if ready else "not ready",
        "model": model,
        "queued": balancer.queued,
        "stopping": balancer.closed,
        "replicas": [_replica(keeper) for keeper in supervisor.keepers],
    }


def _replica(keeper: Keeper) -> Mapping[str, object]:
    engine = keeper.engine
    shown: dict[str, object] = {
        "replica": keeper.rank,
        "state": keeper.state,
        "generation": keeper.generation,
        "error": keeper.error,
    }
    if engine is not None:
        shown |= {
            "name": engine.name,
            "url": engine.url,
            "in_flight": len(engine.leases),
            "outstanding_tokens": engine.load,
            "doubt": engine.doubt,
            "facts": dict(engine.replica.describe()),
        }
    return shown
