"""What the generator counts, in a registry of its own for each application."""

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "plumbline_generator_requests_total",
            "Completion requests by what became of them: answered, http_<status>, cancelled, "
            "or the name of an injected failure.",
            ["outcome"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "plumbline_generator_tokens_total",
            "Tokens of answered requests.",
            ["kind"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "plumbline_generator_requests_in_flight",
            "Completion requests being answered.",
            registry=self.registry,
        )

    async def expose(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self.registry), headers=headers)
