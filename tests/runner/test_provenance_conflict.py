"""Differences between two sessions that would mix answers of two models or configurations."""

from typing import Any

import pytest

from services.runner.session import provenance_conflict
from shared.analysis.silent_failures import looks_random
from shared.run_record import Provenance

INFO = {"model": "m", "chat_template_sha256": "aa", "backend": "verl", "engine": {"model": "x"}}
FACTS: dict[str, Any] = {
    "model": "m",
    "generator": INFO,
    "prompts": {"d": {"template": "{prompt}", "sha256": "1"}},
}


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    return provenance_conflict(*(Provenance.model_validate(facts) for facts in (before, now)))


def test_the_same_may_go_on() -> None:
    assert difference(FACTS, FACTS) is None
    assert difference({}, FACTS) is None
    assert difference(FACTS, {"sandbox": {}}) is None


@pytest.mark.parametrize(
    "generator",
    [
        None,
        {},
        {**INFO, "backend": "replay"},
        {**INFO, "engine": {"model": "y"}},
        {"backend": "verl"},
        {"chat_template_sha256": None, "model": {}},
        {"http://a/v1": INFO, "http://b/v1": INFO},
        {"http://a/v1": INFO, "http://b/v1": None},
    ],
)
def test_what_else_a_generator_says_may_change(generator: object) -> None:
    assert difference(FACTS, {**FACTS, "generator": generator}) is None
    assert difference({**FACTS, "generator": generator}, FACTS) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "other"}, "of the model 'm', the server offers 'other'"),
        ({"generator": {**INFO, "model": "n"}}, "of the model m, the generator has n"),
        (
            {"generator": {**INFO, "chat_template_sha256": "bb"}},
            "of the chat template aa, the generator has bb",
        ),
        (
            {"generator": {"http://a/v1": INFO, "http://b/v1": {"chat_template_sha256": "bb"}}},
            "of the chat template aa, the generator has aa and bb",
        ),
        (
            {"generator": {"model": "n" * 999}},
            f"of the model m, the generator has {'n' * 200}",
        ),
        (
            {"prompts": {"d": {"template": "Do {prompt}", "sha256": "2"}}},
            "to another prompt template of d",
        ),
    ],
)
def test_another_model_template_or_prompt_is_named(changed: dict[str, Any], said: str) -> None:
    assert difference(FACTS, {**FACTS, **changed}) == said


def test_a_model_that_is_told_in_parts_is_compared_by_all_of_them() -> None:
    before = {"generator": {"model": {"path": "/m", "config_sha256": "1"}}}
    assert (
        difference(before, {"generator": {"model": {"config_sha256": "1", "path": "/m"}}}) is None
    )
    assert difference(before, {"generator": {"model": {"path": "/m", "config_sha256": "2"}}}) == (
        'of the model {"config_sha256": "1", "path": "/m"}, '
        'the generator has {"config_sha256": "2", "path": "/m"}'
    )


RANDOM = {"self_check": {"looks_random": True}}


@pytest.mark.parametrize(
    ("generator", "random"),
    [
        (RANDOM, True),
        ({"http://a/v1": INFO, "http://b/v1": RANDOM}, True),
        ({"self_check": {"looks_random": False}}, False),
        ({"self_check": {"looks_random": "True"}}, False),
        ({"self_check": None}, False),
        ({"self_check": []}, False),
        (INFO, False),
        (None, False),
    ],
)
def test_a_generator_that_found_random_weights(generator: Any, random: bool) -> None:
    assert looks_random(generator) is random
