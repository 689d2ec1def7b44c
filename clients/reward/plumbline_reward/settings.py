"""Settings of the client: arguments first, then the environment, then defaults."""

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8090"
DEFAULT_TIMEOUT = 600.0  # seconds

_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Settings:
    """How to ask the service, and what to do if it does not judge.

    ``timeout`` is the time limit of one call in seconds, with all retries. ``score`` is the rule
    that makes a score of a verdict.
    """

    url: str
    token: str | None = field(repr=False)
    timeout: float
    score: str
    purpose: str
    on_unjudged: str


def load_settings(
    url: str | None = None,
    token: str | None = None,
    timeout: float | str | None = None,
    score: str | None = None,
    purpose: str | None = None,
    on_unjudged: str | None = None,
) -> Settings:
    """Take the arguments, and what is None from ``PLUMBLINE_REWARD_*``.

    Raises:
        ValueError: A setting is invalid; the text names it.
    """
    limit = _variable("TIMEOUT", str(DEFAULT_TIMEOUT)) if timeout is None else timeout
    if not 0 < (seconds := _number(limit)) < math.inf:
        raise ValueError(f"timeout: {limit!r} is not a number of seconds above 0")
    score = _variable("SCORE", "pass_ratio") if score is None else score
    wire_rule(score)
    purpose = _allowed("purpose", purpose or "train", "train", "validation")
    on_unjudged = on_unjudged or _variable("ON_UNJUDGED", "raise")
    return Settings(
        url=service_url(url or _variable("URL", DEFAULT_URL)),
        token=_token(token or _variable("TOKEN"), _variable("TOKEN_FILE")),
        timeout=seconds,
        score=score,
        purpose=purpose,
        on_unjudged=_allowed("on_unjudged", on_unjudged, "raise", "none"),
    )


def _variable(name: str, default: str = "") -> str:
    return os.environ.get(f"PLUMBLINE_REWARD_{name}") or default


def _allowed(name: str, value: str, *values: str) -> str:
    if value not in values:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(values)}")
    return value


def service_url(text: str) -> str:
    """Check an address of the service and remove its trailing slash.

    Raises:
        ValueError: It is not ``http[s]://host[:port][/path]``.
    """
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or not text.isascii() or re.search(r"\s", text):
        shown = "what has a user or password" if "@" in text else repr(text)
        raise ValueError(f"url: {shown} is not an address such as {DEFAULT_URL}")
    if parts.username is not None:
        raise ValueError("url: it has a user or password; use PLUMBLINE_REWARD_TOKEN instead")
    return text.rstrip("/")


def wire_rule(rule: str) -> str | dict[str, object]:
    """Convert a rule, ``pass_ratio``, ``accepted`` or ``threshold:<at>``, to that of a request.

    Raises:
        ValueError: There is no such rule, or its threshold is not above 0 and at most 1.
    """
    name, _, text = rule.partition(":")
    if rule in ("pass_ratio", "accepted"):
        return rule
    if name == "threshold" and 0 < (at := _number(text)) <= 1:
        return {"rule": name, "at": at}
    raise ValueError(f"score: {rule!r} is none of pass_ratio, accepted, threshold:<above 0 to 1>")


def _number(value: float | str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def _token(value: str, file: str) -> str | None:
    if not value and not file:
        return None
    name = "PLUMBLINE_REWARD_TOKEN" if value else "PLUMBLINE_REWARD_TOKEN_FILE"
    try:
        token = (value or Path(file).read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ValueError(f"{name} {file!r} cannot be read: {reason}") from None
    if not _TOKEN.fullmatch(token):  # never shown: a message ends up in a log
        raise ValueError(f"{name}: a token has only visible ASCII characters and no blanks")
    return token
