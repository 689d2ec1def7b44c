"""Settings of the client: arguments first, then the environment, then defaults."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8090"
DEFAULT_TIMEOUT = 600.0

Purpose = Literal["train", "validation"]
OnUnjudged = Literal["raise", "none"]
Rule = str | Mapping[str, object]
"""``pass_ratio``, ``accepted``, ``threshold:0.9``, or ``{"rule": "threshold", "at": 0.9}``."""

_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Settings:
    """How to ask the service, and what to do if it does not judge.

    ``timeout`` is the time limit of one call in seconds, with all retries. ``score`` is the rule
    that makes a score of a verdict, in its short form (:func:`score_rule`).
    """

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    score: str = "pass_ratio"
    purpose: Purpose = "train"
    on_unjudged: OnUnjudged = "raise"


def load_settings(
    *,
    url: str | None = None,
    token: str | None = None,
    timeout: float | str | None = None,
    score: Rule | None = None,
    purpose: str | None = None,
    on_unjudged: str | None = None,
) -> Settings:
    """Take what is given, and the rest from ``PLUMBLINE_REWARD_*``.

    Raises:
        ValueError: A setting is invalid; the text names it.
    """

    def variable(name: str) -> str | None:
        return os.environ.get(f"PLUMBLINE_REWARD_{name}") or None

    unjudged = on_unjudged or variable("ON_UNJUDGED") or "raise"
    return Settings(
        url=service_url(url or variable("URL") or DEFAULT_URL),
        token=_token(token or variable("TOKEN"), variable("TOKEN_FILE")),
        timeout=_seconds(variable("TIMEOUT") if timeout is None else timeout),
        score=score_rule(variable("SCORE") or "pass_ratio" if score is None else score),
        purpose=cast("Purpose", _one_of("purpose", purpose or "train", "train", "validation")),
        on_unjudged=cast("OnUnjudged", _one_of("on_unjudged", unjudged, "raise", "none")),
    )


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


def score_rule(rule: Rule) -> str:
    """Check a rule and return its short form: ``pass_ratio``, ``accepted``, ``threshold:<at>``.

    Raises:
        ValueError: There is no such rule, or its threshold is not above 0 and at most 1.
    """
    if isinstance(rule, Mapping):
        name, at = rule.get("rule"), rule.get("at")
        extra = set(rule) - {"rule", "at"}
    else:
        name, separator, text = str(rule).partition(":")
        at, extra = (text if separator else None), set()
    if name in ("pass_ratio", "accepted") and at is None and not extra:
        return str(name)
    if name == "threshold" and not extra and isinstance(at, (int, float, str)):
        try:
            value = float(at)
        except ValueError:
            value = math.nan
        if 0 < value <= 1 and not isinstance(at, bool):
            return f"threshold:{value!r}"
    raise ValueError(f"score: {rule!r} is none of pass_ratio, accepted, threshold:<above 0 to 1>")


def wire_rule(short: str) -> str | dict[str, object]:
    """Convert a rule's short form to the one in a request."""
    name, separator, at = short.partition(":")
    return {"rule": name, "at": float(at)} if separator else name


def _token(value: str | None, file: str | None) -> str | None:
    name = "PLUMBLINE_REWARD_TOKEN"
    if not value and file:
        name = "PLUMBLINE_REWARD_TOKEN_FILE"
        try:
            value = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise ValueError(f"{name} {file!r} cannot be read: {reason}") from None
    elif not value:
        return None
    token = value.strip()
    if not _TOKEN.fullmatch(token):  # never shown: a message ends up in a log
        raise ValueError(f"{name}: a token has only visible ASCII characters and no blanks")
    return token


def _seconds(value: float | str | None) -> float:
    if value is None:
        return DEFAULT_TIMEOUT
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout: {value!r} is not a number of seconds above 0")
    return seconds


def _one_of(name: str, value: str, *allowed: str) -> str:
    if value not in allowed:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(allowed)}")
    return value
