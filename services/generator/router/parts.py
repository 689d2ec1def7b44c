"""How the parts of the router hang together."""

import asyncio
from dataclasses import dataclass

from services.generator.router.balancer import Balancer
from services.generator.router.connections import Connections
from services.generator.router.forwarder import Forwarder
from services.generator.router.keeper import Surroundings
from services.generator.router.metrics import RouterMetrics
from services.generator.router.prober import Prober
from services.generator.router.replica import ReplicaFactory
from services.generator.router.state import Gauges
from services.generator.router.supervisor import Supervisor
from services.generator.router.watch import Watch
from services.generator.settings import GeneratorSettings


@dataclass(frozen=True, slots=True)
class Parts:
    connections: Connections
    balancer: Balancer
    metrics: RouterMetrics
    forwarder: Forwarder
    supervisor: Supervisor


def make_parts(
    settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int, failed: asyncio.Event
) -> Parts:
    connections = Connections(
        connect_timeout=settings.router_connect_timeout,
        progress_timeout=settings.router_progress_timeout,
    )
    balancer = Balancer(places=settings.router_max_in_flight, queue_size=settings.router_queue_size)
    gauges = Gauges(balancer)
    metrics = RouterMetrics(gauges)
    watch = Watch(
        Prober(connections, timeout=settings.router_probe_timeout),
        interval=settings.router_probe_interval,
        failures=settings.router_probe_failures,
    )
    around = Surroundings(settings, factory, balancer, watch, metrics)
    supervisor = Supervisor(n_replicas, around, failed)
    gauges.keepers = tuple(supervisor.keepers)
    forwarder = Forwarder(
        balancer,
        connections,
        metrics,
        deadline=settings.router_deadline,
        max_attempts=settings.router_max_attempts,
    )
    return Parts(connections, balancer, metrics, forwarder, supervisor)
