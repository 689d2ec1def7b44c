"""Removal of secrets from addresses and texts."""

import base64
import json
import string
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared import redaction
from shared.address import Address
from shared.config import Config
from shared.errors import ConfigError
from shared.redaction import KnownSecrets, redact, redact_address

SECRET = "s3kret-pa55word"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no test finds the values of another one hidden."""
    monkeypatch.setattr(redaction, "_known", KnownSecrets())


@dataclass(frozen=True)
class Made:
    """A generated address with its parts."""

    text: str
    secrets: tuple[str, ...]
    host: str


_LETTERS = string.ascii_letters + string.digits
_ODD = _LETTERS + "/@#?:%!$&'()*+,;=[]{}|\\^~-._ \"<>`äöüß中"
users = st.text(_LETTERS + "-._", max_size=8)
passwords = st.text(_ODD, min_size=4, max_size=20).filter(lambda text: text.strip() == text)
hosts = st.one_of(
    st.sampled_from(["localhost", "127.0.0.1", "redis.internal", "[::1]", "[fe80::1]"]),
    st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,6})?", fullmatch=True),
)
ports = st.none() | st.integers(1, 65535)
schemes = st.sampled_from(["http", "https", "HTTP", "redis", "rediss", "s3", "redis+sentinel", ""])
paths = st.sampled_from(["", "/", "/v1", "/0", "/run_code", "/a/b.parquet"])
token_names = st.sampled_from(
    ["token", "sig", "X-Amz-Signature", "password", "access_token", "api_key", "se", "code"]
)
tokens = st.text(_LETTERS + "/+=-._~%@:", min_size=4, max_size=20)


@st.composite
def addresses(draw: st.DrawFn, secret: st.SearchStrategy[str] = passwords) -> Made:
    """An address with a password, as given or quoted, and perhaps a token in its query."""
    scheme, user, password, port = draw(schemes), draw(users), draw(secret), draw(ports)
    given = quote(password, safe="") if draw(st.booleans()) else password
    host = draw(hosts) + (f":{port}" if port else "")
    text = f"{user}:{given}@{host}{draw(paths)}"
    found = [password, given]
    if scheme and draw(st.booleans()):
        token = draw(tokens)
        # The last @ ends the password.
        token = token.replace("@", "%40")
        text += f"?db=1&{draw(token_names)}={token}"
        found.append(token)
    text = f"{scheme}://{text}" if scheme else text
    for one in found:
        assume(one not in text.replace(one, "", 1) and one not in redaction.REDACTED)
    return Made(text, tuple(found), host)


@settings(max_examples=40)
@given(addresses())
def test_an_address_is_shown_without_its_secrets(made: Made) -> None:
    shown = redact_address(made.text)
    assert all(secret not in shown for secret in made.secrets)
    assert made.host in shown
    assert redact_address(shown) == shown


@settings(max_examples=40)
@given(addresses(passwords.filter(lambda text: not set(text) & set(" \"'<>`"))))
def test_an_address_in_a_sentence(made: Made) -> None:
    said = f"cannot reach {made.text} (it is away)"
    shown = redact(said)
    assert all(secret not in shown for secret in made.secrets)
    assert made.host in shown
    assert redact(shown) == shown


@settings(max_examples=40)
@given(addresses())
def test_an_address_in_use_is_known_in_any_text(made: Made) -> None:
    """Also where it is quoted so that its end cannot be found."""
    assume(len(made.secrets[0]) >= 6)
    redaction._known = KnownSecrets()
    redaction.remember_address(made.text)
    for said in (repr(made.text), json.dumps({"a": made.text}), f"{made.text}: mail me@x.org"):
        assert not any(secret in redact(said) for secret in made.secrets if len(secret) >= 6)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:p@ssw0rd@host:1/0", "redis://***@host:1/0"),
        ("redis://user:pa/ss@word@host", "redis://***@host"),
        ("see rediss://:a@b and unix:///x?password=geheim&db=1", "see rediss://***@b and "
         "unix:///x?password=***&db=1"),
        ("http://host/path // a comment by me@example.org", "http://host/path // a comment by "
         "me@example.org"),
        ("http://u:p@h1:1,http://u:p@h2:2", "http://***@h1:1,http://***@h2:2"),
        ("['http://u:p@h1:1', 'http://u:p@h2:2']", "['http://***@h1:1', 'http://***@h2:2']"),
        ("user:pw@host:6379", "***@host:6379"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1"),
        ("s3://bucket/me@host/x", "s3://bucket/me@host/x"),
        ("/data/a:b@c/x.parquet", "/data/a:b@c/x.parquet"),
        ("403, url=URL('https://h/x?sig=ab/c&X-Amz-Signature=d')", "403, url=URL('https://h/x?"
         "sig=***&X-Amz-Signature=***')"),
        ("{'Authorization': 'Bearer abcDEF123'}", "{'Authorization': 'Bearer ***'}"),
        ('{"authorization": "Basic dXNlcjpwdw=="}', '{"authorization": "Basic ***"}'),
        ("Redis refuses the password: wrong", "Redis refuses the password: wrong"),
        ("the key sk-proj-abc123456 is wrong", "the key *** is wrong"),
        ("HF_TOKEN=hf_abcdefghij", "HF_TOKEN=***"),
        ("use Basic authentication, or a Bearer token", "use Basic authentication, or a Bearer "
         "token"),
        ("what? max_tokens=5, 10:30", "what? max_tokens=5, 10:30"),
    ],
)  # fmt: skip
def test_texts(text: str, shown: str) -> None:
    assert redact(text) == shown


REPEATED_PARTS = (" ", ", ", "u:?sig=", "a.", "a-", "sk-", "ghp_", "@ ", "//u:", "a#b@")


def test_a_long_text_is_redacted_to_its_end() -> None:
    """A rule that tries every position anew takes minutes and runs into the timeout."""
    for part in REPEATED_PARTS:
        print(f"{part!r} repeated")  # names the text after a timeout
        text = part * (100_000 // len(part)) + "@h"
        redact(text)
        redact_address(text)


def test_secrets_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("in-a-file\n")
    redaction.remember_environment(
        {
            "OPENAI_API_KEY": "plain-key-1",
            "REDIS_PASSWORD_FILE": str(tmp_path / "password"),
            "SANDBOX_URLS": "http://a:first,1@h,http://b:s3cond@h",
            "MAX_TOKENS": "1234567",
        }
    )
    shown = redact("plain-key-1 in-a-file first,1 s3cond 1234567")
    assert shown == "*** *** *** *** 1234567"
    assert redact(base64.b64encode(b"plain-key-1").decode()) == "***"


def test_an_ordinary_word_is_not_hidden_for_being_a_password() -> None:
    redaction.remember_environment({"OPENAI_API_KEY": "openai", "REDIS_PASSWORD": "plumbline"})
    assert redact("openai plumbline") == "openai plumbline"
    assert redact("redis://:plumbline@host") == "redis://***@host"
    assert Config().without_secrets() == Config()


@settings(max_examples=40)
@given(addresses(passwords))
def test_an_address_is_called_with_its_credentials(made: Made) -> None:
    redaction._known = KnownSecrets()  # not those of all examples
    parsed = Address.parse(made.text)
    assert parsed.name == made.host
    assert made.secrets[0] not in f"{parsed} {parsed!r} {parsed.name}"
    scheme, value = parsed.headers["Authorization"].split()
    assert scheme == "Basic"
    sent = base64.b64decode(value).decode().partition(":")[2]
    # A password that was not quoted is taken as quoted, as libraries do.
    assert sent == made.secrets[0] or "%" in made.secrets[0]


def test_a_stored_address_must_be_given_again() -> None:
    with pytest.raises(ConfigError, match="give the whole address again"):
        Address.parse("http://***@host:1")


def test_a_config_is_shown_without_secrets() -> None:
    own = {
        "sandbox": {"url": [f"http://u:{SECRET}@h:1/run_code", "http://h2"]},
        "generation": {"base_urls": [f"http://{SECRET}@h:2"]},
        "data": {"eval_files": [f"https://h/x.parquet?token={SECRET}"]},
        "output": {"dir": f"s3://key:{SECRET}@bucket/x"},
        "actor_rollout_ref": {"model": {"path": "org/model:tag@rev"}},
    }
    config = Config.model_validate(own)
    shown = config.without_secrets()
    assert SECRET not in shown.model_dump_json()
    assert shown.sandbox.url == ["http://***@h:1/run_code", "http://h2"]
    assert shown.actor_rollout_ref.model.path == "org/model:tag@rev"
    assert shown.protocol() == config.protocol()
    assert config.for_services().sandbox == config.sandbox
