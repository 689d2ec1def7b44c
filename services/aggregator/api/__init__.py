"""The aggregator's JSON API, and the description of it at ``/api/openapi.json``."""

from services.aggregator.api.routes import add_api

__all__ = ["add_api"]
