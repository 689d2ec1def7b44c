"""Settings of services: empty variables; Redis' address, and the separate password."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from services.judge.jobs import JudgeSettings
from shared.errors import ConfigError
from shared.service.settings import RedisSettings, load_settings


def password(settings: RedisSettings) -> str | None:
    """What a client would send."""
    return Redis.from_url(settings.redis_url).get_connection_kwargs().get("password")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "REDIS_USERNAME", "REDIS_PASSWORD", "REDIS_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_empty_variables_are_unset_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty host would be every address of the machine."""
    names = ["HOST", "PORT", "LOG_LEVEL", "REDIS_URL", "REDIS_PASSWORD_FILE"]
    for name in (*names, "PLUMBLINE_JUDGE_CONCURRENCY", "PLUMBLINE_SANDBOX_TOKEN_FILE"):
        monkeypatch.setenv(name, "")
    settings = load_settings(JudgeSettings)
    assert (settings.host, settings.port, settings.log_level) == ("127.0.0.1", 0, "INFO")
    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    monkeypatch.setenv("PLUMBLINE_SANDBOX_TOKEN_FILE", "/nowhere")
    monkeypatch.setenv("PLUMBLINE_SANDBOX_TOKEN", "of another sandbox")
    none = {"PLUMBLINE_SANDBOX_TOKEN": "", "PLUMBLINE_SANDBOX_TOKEN_FILE": ""}
    assert load_settings(JudgeSettings, **none).sandbox_headers == {}


def test_from_a_file_without_its_line_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of a file\n")
    monkeypatch.setenv("REDIS_PASSWORD_FILE", str(tmp_path / "secret"))
    assert password(load_settings(RedisSettings)) == "of a file"


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDIS_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"REDIS_PASSWORD_FILE .*none"):
        load_settings(RedisSettings)


@pytest.mark.parametrize("url", ["redis://own@host", "rediss://own:p@host:1/0"])
def test_the_urls_own_user_goes_first(url: str) -> None:
    settings = RedisSettings(redis_url=url, redis_username="other", redis_password="p")
    arguments = Redis.from_url(settings.redis_url).get_connection_kwargs()
    assert (arguments["username"], arguments["password"]) == ("own", "p")


@given(*[st.text(st.characters(blacklist_categories=["Cs"]), min_size=1)] * 2)
def test_any_user_and_password_arrive(user: str, text: str) -> None:
    for url in ("redis://host:6379/0", "unix:///run/redis.sock"):
        settings = RedisSettings(redis_url=url, redis_username=user, redis_password=text)
        parts = urlsplit(settings.redis_url)
        assert (unquote(parts.username or ""), unquote(parts.password or "")) == (user, text)
