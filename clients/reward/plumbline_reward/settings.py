"""Settings of the client: arguments first, then the environment, then defaults."""

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8090"
DEFAULT_TIMEOUT = 600.0

_ALLOWED = {"purpose": ("train", "validation"), "on_unjudged": ("raise", "none")}
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Settings:
    """How to ask the service, and what to do if it does not judge.

    ``timeout`` is the time limit of one call in seconds, with all retries. ``score`` is the rule
    that makes a score of a verdict.
    """

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    score: str = "pass_ratio"
    purpose: str = "train"
    on_unjudged: str = "raise"


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

    def variable(name: str) -> str | None:
        return os.environ.get(f"PLUMBLINE_REWARD_{name}") or None

    limit = timeout if timeout is not None else variable("TIMEOUT") or DEFAULT_TIMEOUT
    try:
        seconds = float(limit)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout: {limit!r} is not a number of seconds above 0")
    settings = Settings(
        url=service_url(url or variable("URL") or DEFAULT_URL),
        token=_token(token or variable("TOKEN"), variable("TOKEN_FILE")),
        timeout=seconds,
        score=score if score is not None else variable("SCORE") or "pass_ratio",
        purpose=purpose or "train",
        on_unjudged=on_unjudged or variable("ON_UNJUDGED") or "raise",
    )
    wire_rule(settings.score)
    for name, allowed in _ALLOWED.items():
        if (value := getattr(settings, name)) not in allowed:
            raise ValueError(f"{name}: {value!r} is none of {', '.join(allowed)}")
    return settings


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
    name, _, text = str(rule).partition(":")
    if rule in ("pass_ratio", "accepted"):
        return rule
    try:
        at = float(text)
    except ValueError:
        at = math.nan
    if name == "threshold" and 0 < at <= 1:
        return {"rule": name, "at": at}
    raise ValueError(f"score: {rule!r} is none of pass_ratio, accepted, threshold:<above 0 to 1>")


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
