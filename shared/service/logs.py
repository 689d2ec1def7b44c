"""Structured logging: one JSON object per line on stdout, the same keys in every service."""

import logging
import sys
from typing import TextIO, cast

import structlog


def configure_logging(service: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library's root logger to write JSON lines.

    Args:
        service: Name of the service, in every line as ``service``.
        level: A standard level name (``DEBUG``, ``INFO``, ``WARNING``, ``ERROR``).
        stream: Stream for the lines; standard output by default.
    """
    shared_processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _add_service(service),
    ]
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared_processors,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared_processors,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger(name))


def _add_service(service: str) -> structlog.typing.Processor:
    def add(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["service"] = service
        return event

    return add
