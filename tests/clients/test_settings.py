"""Settings: arguments before the environment before defaults; wrong ones are named."""

from pathlib import Path

import pytest
from plumbline_reward.settings import load_settings, service_url


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_REWARD_URL", "http://a:1")
    monkeypatch.setenv("PLUMBLINE_REWARD_TIMEOUT", "5")
    monkeypatch.setenv("PLUMBLINE_REWARD_ON_UNJUDGED", "none")
    assert load_settings().url == "http://a:1"
    assert load_settings(url="http://b:2").url == "http://b:2"
    assert (load_settings().timeout, load_settings(timeout=7).timeout) == (5, 7)
    assert load_settings(on_unjudged="raise").on_unjudged == "raise"
    monkeypatch.setenv("PLUMBLINE_REWARD_URL", "")  # as Compose passes an unset one
    assert load_settings().url == "http://127.0.0.1:8090"


def test_a_token_comes_from_a_variable_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN_FILE", str(file))
    assert load_settings().token == "from-file"
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN", "from-variable")
    assert load_settings().token == "from-variable"
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN", "two words-secret")
    with pytest.raises(ValueError, match="visible ASCII") as caught:
        load_settings()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN", "")
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN_FILE", str(tmp_path / "missing"))
    with pytest.raises(ValueError, match=r"TOKEN_FILE .*missing.* cannot be read: No such file"):
        load_settings()


WRONG = {
    "url": (
        r"url: .* is not an address such as",
        ["x", "127.0.0.1:8090", "ftp://a", "http://", "http://a:99999", "http://a?b", "http://a b"],
    ),
    "timeout": (r"timeout: .* is not a number of seconds", ["0", "-1", "nan", "inf", "soon"]),
    "score": (
        r"score: .* is none of",
        ["", "best", "threshold", "threshold:", "threshold:0", "threshold:1.1", "threshold:nan",
         "accepted:1"],
    ),
    "purpose": (r"purpose: .* is none of", ["eval"]),
    "on_unjudged": (r"on_unjudged: .* is none of", ["zero"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named(name: str) -> None:
    said, values = WRONG[name]
    for value in values:
        with pytest.raises(ValueError, match=said):
            load_settings(**{name: value})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://user:secret@a:1", "PLUMBLINE_REWARD_TOKEN"),
        ("http://user:secret@a:1?b", "not an address"),
        ("http://user:a secret@a:1", "not an address"),
    ],
)
def test_credentials_in_an_address_are_not_repeated(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        service_url(url)
    assert "secret" not in str(caught.value)
