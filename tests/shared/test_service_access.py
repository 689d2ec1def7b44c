"""Access rules of a service: Host names, pages of other sites, tokens, forms of bodies."""

import gzip
import json
import logging
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ConfigError
from shared.service.access import COOKIE, Access, AllowedHosts, BearerToken, read_token
from shared.service.settings import ServiceSettings, load_settings
from tests.shared.http_clients import JSON, ask, post, request, server, status_of

TOKEN = "s3cret-token"
LOCKED = Access(token=BearerToken(TOKEN))
PAGE = Access(token=BearerToken(TOKEN), page=True)


# Host names

OWN = [
    "localhost", "LOCALHOST", "localhost:8080", "localhost.", "localhost.:1", "app.localhost",
    "127.0.0.1", "127.0.0.1:80", "127.8.9.1", "[::1]", "[::1]:8081", "10.1.2.3:9090", "[fd00::1]",
    "[::ffff:127.0.0.1]", "",
]  # fmt: skip
FOREIGN = [
    "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
    "evillocalhost", "localhost@evil.example", "evil.example@localhost",
    "localhost:80@evil.example",
    "localhost:80:80", "localhost/", "localhost#", "localhost?", "localhost, evil.example",
    "localhost evil.example", "localhost:port", "localhost:-1", "localhost:123456", "localhost..",
    ".localhost", ".", "*", "[::1", "::1", "[localhost]", "[127.0.0.1]", "[::1]evil.example",
    "2130706433", "0x7f.1", "127.1", "127.0.0.01", "256.0.0.1", "\xff", "locàlhost", "ⓛocalhost",
    "localhost\x00", "sandbox",
]  # fmt: skip


@pytest.mark.parametrize("host", OWN)
def test_loopback_names_and_addresses_are_allowed(host: str) -> None:
    assert AllowedHosts().admits(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_are_not(host: str) -> None:
    hosts = AllowedHosts(["aggregator"])
    assert not hosts.admits(host)


def test_configured_names() -> None:
    hosts = AllowedHosts(["Aggregator", "*.plumbline.svc", "eval.example.org."])
    allowed = ["aggregator:8081", "a.plumbline.svc", "x.Y.plumbline.svc.", "eval.example.org"]
    assert all(hosts.admits(host) for host in allowed)
    refused = ["plumbline.svc", "aggregator.evil.example", "aplumbline.svc", "x.eval.example.org"]
    assert not any(hosts.admits(host) for host in refused)
    assert AllowedHosts(["*"]).admits("evil.example")


@pytest.mark.parametrize(
    "text", ["http://a", "a:80", "a/b", "*.*", "a.*", "**", "a b", ".a", "a..b"]
)
def test_a_name_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PLUMBLINE_ALLOWED_HOSTS", f"good, {text}")
    with pytest.raises(ConfigError, match=r"PLUMBLINE_ALLOWED_HOSTS.*is not a host name"):
        load_settings(ServiceSettings)


async def test_hosts_of_requests() -> None:
    async with server() as port:
        assert await status_of(port, request("Host: LocalHost.:1")) == 200
        assert await status_of(port, request(version="1.0")) == 200  # a probe without a name
        head, body = await ask(port, request("Host: evil.example"))
        assert head.split()[1] == "421"
        assert "'evil.example'" in json.loads(body)["error"]
        assert "PLUMBLINE_ALLOWED_HOSTS" in json.loads(body)["error"]
        assert await status_of(port, request("Host: localhost", "Host: evil.example")) == 400
        assert await status_of(port, request("Host: evil.example", version="1.0")) == 421
        assert await status_of(port, request("Host: evil.example", target="/nowhere")) == 421


# Pages of other sites


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 200),
        (("Origin: http://localhost",), 200),
        (("Origin: http://LOCALHOST",), 200),
        (("Origin: http://evil.example",), 403),
        (("Origin: http://localhost:8080",), 403),
        (("Origin: null",), 403),
        (("Origin: http://[",), 403),
    ],
)
async def test_posts_from_pages(headers: tuple[str, ...], status: int) -> None:
    async with server() as port:
        assert await status_of(port, post(JSON, *headers)) == status


# Bodies


async def test_nothing_is_inflated() -> None:
    """16 MB of blanks in 16 kB."""
    bomb = gzip.compress(b" " * (1 << 24))
    async with server() as port:
        _, body = await ask(port, post(JSON, "Content-Encoding: gzip", body=bomb))
        assert json.loads(body) == {"bytes": len(bomb)}


# Tokens


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((f"Authorization: Bearer {TOKEN}",), 200),
        ((f"Authorization: bearer  {TOKEN} ",), 200),
        ((), 401),
        (("Authorization: Bearer",), 401),
        (("Authorization: Bearer wrong",), 401),
        ((f"Authorization: Basic {TOKEN}",), 401),
        ((f"Authorization: {TOKEN}",), 401),
        ((f"Authorization: Bearer {TOKEN}x",), 401),
        (("Authorization: Bearer \xff\xfe",), 401),
        ((f"Cookie: {COOKIE}={LOCKED.token and LOCKED.token.cookie}",), 401),  # not a page
    ],
)
async def test_tokens(headers: tuple[str, ...], status: int) -> None:
    async with server(LOCKED) as port:
        head, body = await ask(port, post(JSON, *headers))
        assert head.split()[1] == str(status)
        assert ("WWW-Authenticate: Bearer" in head) == (status == 401)
        assert TOKEN not in head + body.decode()
        assert (
            await status_of(port, request("Host: localhost", *headers, target="/metrics")) == status
        )


async def test_probes_need_no_token_and_learn_nothing() -> None:
    right = f"Authorization: Bearer {TOKEN}"
    async with server(LOCKED) as port:
        assert await status_of(port, request("Host: localhost")) == 200
        _, body = await ask(port, request("Host: localhost", target="/readyz"))
        assert json.loads(body) == {"ready": True}
        _, body = await ask(port, request("Host: localhost", right, target="/readyz"))
        assert json.loads(body) == {"ready": True, "queued": 0}
        assert await status_of(port, request("Host: localhost", target="/nowhere")) == 401


async def test_a_browser_gets_a_cookie_for_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def page(app: aiohttp.web.Application) -> None:
        async def show(asked: aiohttp.web.Request) -> aiohttp.web.Response:
            return aiohttp.web.Response(text=f"page {asked.query_string}")

        app.router.add_get("/", show)

    jar = aiohttp.CookieJar(unsafe=True)  # which keeps cookies of addresses
    async with server(PAGE, change=page) as port, aiohttp.ClientSession(cookie_jar=jar) as browser:
        url = f"http://127.0.0.1:{port}/"
        for wrong in ("", "?token=", "?token=wrong", "?token=%ff"):
            async with browser.get(url + wrong) as refused:
                assert refused.status == 401
        async with browser.get(f"{url}?a=1&token={TOKEN}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "./?a=1")
            cookie = answer.headers["Set-Cookie"]
            assert TOKEN not in cookie
            assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/"))
        async with browser.get(url) as answer:
            assert (answer.status, await answer.text()) == (200, "page ")
        async with browser.get(f"{url}?token={TOKEN}") as answer:
            assert "token" not in str(answer.url)
        async with browser.get(url, headers={"Cookie": f"{COOKIE}={TOKEN}"}) as answer:
            assert answer.status == 401 or COOKIE in str(jar.filter_cookies(answer.url))
    assert TOKEN not in caplog.text


def test_a_token_is_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"\n {TOKEN}\r\n")
    assert read_token(None, None, "X") is None
    assert read_token("", "", "X") is None
    assert read_token(None, file, "X") == TOKEN
    assert read_token(" other\n", file, "X") == "other"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "X_FILE: the token is empty"),
        (b"two\nlines", "X_FILE: a token has only"),
        ("schlüssel".encode(), "X_FILE: a token has only"),
        (b"\xff\xfe", "X_FILE .* is not a text file"),
        (None, "X_FILE .* cannot be read"),
    ],
)
def test_a_file_without_a_usable_token(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_token(None, file, "X")
    assert "two" not in str(error.value)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1), st.text())
def test_only_the_token_matches(token: str, other: str) -> None:
    bearer = BearerToken(token)
    assert bearer.admits({"Authorization": f"Bearer {token}"})
    assert bearer.matches(other) == (token == other)
    assert bearer.admits_cookie(bearer.cookie)
    assert not bearer.admits_cookie(token)
