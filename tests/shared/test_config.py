from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.config import load_config
from shared.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def refusal(path: Path | None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "config.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_a_file_with_overrides_laid_over_it(written: Any) -> None:
    path = written("judge: {workers: 2}\nrun: {name: mine}\ndata: {eval_files: [a, b]}\n")
    config = load_config(path, ["judge.workers=8", "sandbox.timeout=2.5", "data.eval_files=[c]"])
    assert config.judge.workers == 8
    assert config.sandbox.timeout == 2.5
    assert config.data.eval_files == ["c"]
    assert config.run.name == "mine"
    assert config.output_dir == "outputs/mine"


def test_interpolation(written: Any) -> None:
    path = written("run: {name: r}\noutput: {dir: 'out/${run.name}'}\n")
    assert load_config(path).output_dir == "out/r"


def test_overrides_with_a_plus(written: Any) -> None:
    config = load_config(written("data: {limit: 2}\n"), ["+data.limit=3", "++judge.workers=7"])
    assert (config.data.limit, config.judge.workers) == (3, 7)


# What is refused


def test_a_file_that_hydra_would_compose(written: Any) -> None:
    assert "only Hydra composes" in refusal(written("defaults: [base, _self_]\n"))
    assert load_config(written("defaults: [_self_]\nrun: {name: x}\n")).name == "x"


@pytest.mark.parametrize(
    ("override", "unknown", "nearest"),
    [
        ("judge.worker", "judge.worker", "judge.workers"),
        ("temperature", "temperature", "actor_rollout_ref.rollout.temperature"),
        ("data.max_attempts", "data.max_attempts", "judge.max_attempts"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(
    override: str, unknown: str, nearest: str
) -> None:
    message = refusal(None, f"{override}=1")
    assert message == f"unknown config key {unknown!r}; did you mean {nearest!r}?"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("judge.workers=many", "judge.workers"),
        ("sandbox.timeout=[1]", "sandbox.timeout"),
        ("generation.retry_budget=inf", "generation.retry_budget"),
        ("sandbox.timeout=.inf", "sandbox.timeout"),
        ("actor_rollout_ref.rollout.temperature=.inf", "actor_rollout_ref.rollout.temperature"),
        ("generation.extra_body={n: 2}", "generation.extra_body"),
        ("generation.stop=['']", "generation.stop.0"),
        ("data=5", "data"),
        ("run.name=a/b", "run"),
        ("qa_logs.quotas.x={foo: 1}", "qa_logs.quotas.x.foo"),
    ],
)
def test_an_ill_typed_value_is_named(override: str, key: str) -> None:
    assert f"config key {key!r}" in refusal(None, override)


def test_every_wrong_key_is_named() -> None:
    message = refusal(None, "judge.workers=x", "sandbox.tiemout=1")
    assert "'judge.workers'" in message
    assert "'sandbox.timeout'" in message


@pytest.mark.parametrize("override", ["judge.workers", "--verbose", "judge.workers:4", ""])
def test_an_override_that_is_not_key_value(override: str) -> None:
    message = refusal(None, override)
    assert repr(override) in message
    assert "key=value" in message


@pytest.mark.parametrize(
    "text",
    [
        "judge: {workers: 2",
        "- judge",
        "\tx: 1",
        b"\xff\xfe\x00",
        "run: {name: '${nothing.there}'}",
        "run: {name: ???}",
        "null: 1",
    ],
)
def test_a_file_that_cannot_be_parsed_is_named(written: Any, text: str | bytes) -> None:
    path = written(text)
    assert str(path) in refusal(path)


# Judging


def test_a_data_set_is_judged_as_all_are_but_for_what_it_says() -> None:
    judge = load_config(
        None,
        [
            "judge.checker=float:0.01",
            "judge.max_timeouts=3",
            "judge.datasets.cc={checker: exact, max_timeouts: 1}",
            "judge.datasets.go={method: compute_score, language: go}",
        ],
    ).judge
    assert judge.for_dataset("other") == judge
    own = judge.for_dataset("cc")
    assert (own.method, own.checker, own.max_timeouts) == ("batch", "exact", 1)
    assert own.call_seconds == judge.call_seconds
    # The checker was for the other method.
    go = judge.for_dataset("go")
    assert (go.method, go.language, go.checker, go.max_timeouts) == ("compute_score", "go", None, 3)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["judge.checker=fuzzy"], "unknown checker 'fuzzy'; valid are"),
        (["judge.method=submit", "judge.checker=tokens"],
         "submit has only the checker 'lines', not 'tokens'"),
        (["judge.method=submit", "judge.max_cases=10"], "submit judges all cases"),
        (["judge.method=compute_score", "judge.checker=lines"],
         "compute_score has only the checker 'exact', not 'lines'"),
        (["judge.language=Python"], "did you mean 'python'?"),
        (["judge.language=lua"],
         "batch judges python, cpp, java, nodejs, rust, go; for 'lua' use the method submit"),
        (["judge.datasets.cc.checker=fuzzy"], "datasets.cc: unknown checker 'fuzzy'"),
        (["judge.method=submit", "judge.datasets.cc.checker=exact"],
         "datasets.cc: submit has only the checker 'lines'"),
        (["judge.datasets.cc.workers=2"], "unknown config key 'judge.datasets.cc.workers'"),
    ],
)  # fmt: skip
def test_ways_of_judging_that_contradict_themselves(overrides: list[str], said: str) -> None:
    message = refusal(None, *overrides)
    assert said in message
    assert "Value error" not in message
    assert "validation error" not in message
    assert "a mapping" not in message


# The rest


OTHERS = ("data", "gate", "kustomization")
RUNS = [path for path in sorted(CONFIGS.glob("*.yaml")) if not path.name.startswith(OTHERS)]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_every_config_of_the_repository_loads(path: Path) -> None:
    config = load_config(path)
    assert config.actor_rollout_ref.rollout.load_format == "auto"
    assert config.model_dump(exclude_unset=True) == yaml.safe_load(path.read_text())
