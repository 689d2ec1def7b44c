"""Structured logging: one JSON object per line on stdout, the same keys in every service.

Secrets are removed from every line, and from the traceback of an exception that nobody catches.
"""

import logging
import sys
import threading
import traceback
from types import TracebackType
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from shared.errors import ConfigError
from shared.redaction import redact, remember_environment


def configure_logging(service: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Have structlog and the standard library's root logger write JSON lines, by default to stdout.

    Every line has the name of the service.

    Raises:
        ConfigError: There is no such level.
    """
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigError(f"LOG_LEVEL is {level!r}; give DEBUG, INFO, WARNING or ERROR")
    remember_environment()
    sys.excepthook = _print_exception
    threading.excepthook = _print_exception_of_thread

    def add_service(_logger: object, _method: str, event: EventDict) -> EventDict:
        return {**event, "service": service}

    shared_processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        add_service,
    ]
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared_processors,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _redact_event,
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


def _redact_event(_logger: object, _method: str, event: EventDict) -> EventDict:
    return cast(EventDict, _redacted(event))


def _redacted(value: object) -> object:
    """Redact strings in values that JSON can express, and the text of others."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {redact(str(name)): _redacted(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(part) for part in value]
    return redact(value if isinstance(value, str) else repr(value))


def _print_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    print(redact("".join(traceback.format_exception(kind, error, trace))), end="", file=sys.stderr)


def _print_exception_of_thread(hook: threading.ExceptHookArgs) -> None:
    if hook.exc_type is not SystemExit and hook.exc_value is not None:
        _print_exception(hook.exc_type, hook.exc_value, hook.exc_traceback)
