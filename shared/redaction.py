"""Redaction: removal of passwords and tokens from addresses and texts.

:func:`redact` is for a text that may contain addresses (an error, a log line),
:func:`redact_address` for a value that is an address, in which a password may have any character.
Where it is ambiguous whether a part is secret, it is removed. Both are idempotent.

*Known secrets*, values of the environment and of addresses in use, are removed from every text in
every usual encoding.
"""

import base64
import functools
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

REDACTED = "***"
# Shorter values, and words such as "plumbline" or "openai", are in ordinary texts and names.
_SHORTEST_SECRET = 6
_WORD = re.compile(r"[a-z_]{1,11}")
_LARGEST_FILE = 64 * 1024

_SCHEME_NAME = r"[A-Za-z][A-Za-z0-9+.\-]{0,30}"
_SCHEME = re.compile(rf"(?:{_SCHEME_NAME}:)?/{{2,}}")
# In a list of addresses a comma also separates; it may be part of a password otherwise.
# A run of blanks is tried once, so that a megabyte of them takes no time.
_SEPARATOR = re.compile(rf"((?:[,;|]|(?<!\s)\s)\s*+(?={_SCHEME_NAME}://))")
# With a scheme, or as user:password@host.
_ADDRESS = re.compile(
    rf"(?<![A-Za-z0-9+.\-]){_SCHEME_NAME}://[^\s\"'<>`]+"
    r"|(?<![\w.@/:-])[\w.-]{0,64}:[^\s\"'<>`/@]{1,256}@[^\s\"'<>`]+"
)
_PATH = ("/", "./", "../", "~")

# Query parameters that are shown; a value of any other one is removed.
_SHOWN_PARAMETERS = frozenset(
    ("config", "db", "download", "fields", "format", "health_check_interval", "limit", "offset",
     "page", "protocol", "raw", "ref", "region", "revision", "split", "timeout", "version",
     "versionid")
)  # fmt: skip
_PARAMETER = re.compile(r"([?&#;])([^=&#;?]+)=([^&#;]*)")
_CREDENTIALS = re.compile(r"\b((?:[Bb]earer|[Bb]asic)\s+)(?=\S{0,200}[\dA-Z=_])[\w.~+/=-]{6,}")
_ASSIGNMENT = re.compile(
    r"\b((?:token|password|passwd|secret|api_?key|signature)=)[^\s&,;\"'<>]{6,}", re.IGNORECASE
)
_KEYS = re.compile(
    r"\b(?:sk-(?=[A-Za-z_-]{0,200}+\d)[\w-]{8,}|hf_[A-Za-z0-9]{8,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|"
    r"gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[abeprs]-[\w-]{8,})"
)

_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:TOKEN|API_?KEY|PASSWORD|PASSWD|SECRET|SECRET_KEY|ACCESS_KEY|ACCESS_KEY_ID|"
    r"PRIVATE_KEY|CREDENTIALS?|AUTH)(_FILE)?$",
    re.IGNORECASE,
)
_ADDRESS_VARIABLE = re.compile(r"(?:_URLS?|_PROXY|_ENDPOINT|_ADDRESS)$", re.IGNORECASE)


def redact(text: str) -> str:
    """Remove known secrets, credentials of addresses, tokens and usual keys from a text."""
    text = _ADDRESS.sub(lambda address: _redact_list(address[0]), _known.remove(text))
    text = _ASSIGNMENT.sub(rf"\1{REDACTED}", _CREDENTIALS.sub(rf"\1{REDACTED}", text))
    return _KEYS.sub(REDACTED, text)


def redact_address(text: str) -> str:
    """Remove credentials and tokens from an address, or a list of addresses with commas.

    Host, port and path stay; a value that is no address is treated as a text.
    """
    return redact(_redact_list(text) if "@" in text or "://" in text else text)


def redact_values(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Redact all strings of a JSON document, each as an address; keys of mappings too."""
    if isinstance(value, dict):
        return {redact_address(name): redact_values(part) for name, part in value.items()}
    if isinstance(value, list):
        return [redact_values(part) for part in value]
    return redact_address(value) if isinstance(value, str) else value


def is_redacted(address: str) -> bool:
    """Whether secrets of an address were removed, so that it cannot be used."""
    return f"{REDACTED}@" in address or f"={REDACTED}" in address


def _redact_list(text: str) -> str:
    redacted = []
    for address in _SEPARATOR.split(text):
        scheme, userinfo, rest, query = split_address(address)
        hidden = "" if userinfo is None else f"{REDACTED}@"
        redacted.append(f"{scheme}{hidden}{rest}{_PARAMETER.sub(_redact_parameter, query)}")
    return "".join(redacted)


def _redact_parameter(parameter: re.Match[str]) -> str:
    mark, name, value = parameter.groups()
    keep = not value or name.lower() in _SHOWN_PARAMETERS
    return f"{mark}{name}={value if keep else REDACTED}"


# Addresses


def split_address(text: str) -> tuple[str, str | None, str, str]:
    """Split an address into scheme with slashes, userinfo if any, host with path, and query.

    A password may have any characters, also unquoted ``/``, ``@``, ``#``: the userinfo ends at the
    last ``@``. An ``@`` belongs to the path only if no colon comes before it; elsewhere it must be
    quoted as ``%40``. A fragment belongs to the query.
    """
    prefix = _SCHEME.match(text)
    scheme = prefix[0] if prefix else ""
    userinfo, at, rest = text[len(scheme) :].rpartition("@")
    if at and not _is_userinfo(userinfo, scheme):
        at, rest = "", text[len(scheme) :]
    query = min((start for mark in "?#" if (start := rest.find(mark)) >= 0), default=len(rest))
    return scheme, userinfo if at else None, rest[:query], rest[query:]


def _is_userinfo(before: str, scheme: str) -> bool:
    if not scheme:
        return ":" in before and not before.startswith(_PATH)
    return ":" in before or "/" not in before or "@" in before.partition("/")[0]


# Known secrets


class KnownSecrets:
    """Values that are removed from every text, in the encodings in which they may appear."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, *values: str) -> None:
        secrets = {secret for value in values for secret in (value, value.strip())}
        new = {
            secret
            for secret in secrets - self._values
            if len(secret) >= _SHORTEST_SECRET and not _WORD.fullmatch(secret)
        }
        if new:
            self._values |= new
            forms = {form for value in self._values for form in _forms(value)}
            longest_first = sorted(forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def remove(self, text: str) -> str:
        return self._pattern.sub(REDACTED, text) if self._pattern else text


_known = KnownSecrets()


def remember_secrets(*values: str) -> None:
    """Remove these values from every text that this process redacts from now on."""
    _known.add(*values)


def remember_address(address: str) -> None:
    """Remember the secrets of an address, or of a list of addresses with commas."""
    remember_secrets(*_secrets_of(address))


def remember_environment(environment: Mapping[str, str] | None = None) -> None:
    """Remember the secrets in the environment (by default this process's), and in files it names.

    These are variables such as ``OPENAI_API_KEY``, ``HF_TOKEN`` or ``REDIS_PASSWORD_FILE``, and the
    passwords in variables with addresses.
    """
    secrets: list[str] = []
    for name, value in (os.environ if environment is None else environment).items():
        if secret := _SECRET_VARIABLE.search(name):
            secrets += _content(value) if secret[1] else [value]
        elif _ADDRESS_VARIABLE.search(name):
            secrets += _secrets_of(value)
    remember_secrets(*secrets)


def without_secrets(environment: Mapping[str, str], *, keep: tuple[str, ...]) -> dict[str, str]:
    """Return the variables without secrets, and those whose names begin with one of ``keep``."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(keep) or not is_secret_variable(name, value)
    }


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable has a secret: its name says so, or its value is an address with one."""
    if _SECRET_VARIABLE.search(name):
        return True
    return bool(_ADDRESS_VARIABLE.search(name)) and redact_address(value) != value


def _content(path: str) -> list[str]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_FILE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return []  # the service that needs the file reports it
    return [text, *text.splitlines()]


def _secrets_of(address: str) -> Iterator[str]:
    for part in _SEPARATOR.split(address):
        _, userinfo, _, query = split_address(part)
        if userinfo is not None:
            user, colon, password = userinfo.partition(":")
            yield from (userinfo, password if colon else user)
            yield f"{unquote(user)}:{unquote(password)}"
        for _, name, value in _PARAMETER.findall(query):
            if name.lower() not in _SHOWN_PARAMETERS:
                yield value


@functools.lru_cache(maxsize=256)
def _forms(value: str) -> frozenset[str]:
    """The value in the encodings of URLs, headers, JSON, ``repr`` and HTML."""
    forms = set()
    for plain in {value, unquote(value)}:
        encoded = base64.b64encode(plain.encode("utf-8", "surrogatepass")).decode()
        forms |= {quote(plain, safe=safe) for safe in ("", "/", ":@", "!$&'()*+,;=:")}
        forms |= {json.dumps(plain, ensure_ascii=ascii)[1:-1] for ascii in (True, False)}
        forms |= {plain, quote_plus(plain), repr(plain)[1:-1], html.escape(plain)}
        forms |= {encoded, encoded.rstrip("=")}
    return frozenset(form for form in forms if len(form) >= _SHORTEST_SECRET)
