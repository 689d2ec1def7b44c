"""Files with a ``defaults`` list are composed as Hydra does; overrides mean the same everywhere."""

from pathlib import Path

import pytest

from shared.config import Config, load_config
from shared.errors import ConfigError

FILES = {
    "base": "sandbox: {timeout: 3}\njudge: {workers: 2}\nrun: {name: base}\n",
    "engine/sglang": "name: sglang\ntemperature: 0.2\n",
    "engine/vllm": "name: vllm\nload_format: ???\n",
    "main": """
defaults:
  - base
  - engine@actor_rollout_ref.rollout: sglang
  - optional judging: none
  - _self_
run: {name: main}
output: {dir: 'out/${run.name}'}
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path, name, text)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_files_and_groups_are_composed_in_their_order(folder: Path) -> None:
    config = load_config(folder / "main.yaml")
    rollout = config.actor_rollout_ref.rollout
    assert (config.run.name, config.output.dir) == ("main", "out/main")
    assert (config.sandbox.timeout, config.judge.workers) == (3, 2)
    assert (rollout.name, rollout.temperature) == ("sglang", 0.2)
    write(folder, "main", "defaults: [_self_, base]\nrun: {name: main}\n")
    assert load_config(folder / "main.yaml").run.name == "base"


def test_an_option_of_a_group_is_chosen_on_the_command_line(folder: Path) -> None:
    engine = "engine@actor_rollout_ref.rollout"
    given = [f"{engine}=vllm", "actor_rollout_ref.rollout.load_format=auto"]
    rollout = load_config(folder / "main.yaml", given).actor_rollout_ref.rollout
    assert (rollout.name, rollout.temperature) == ("vllm", 0)
    assert load_config(folder / "main.yaml", [f"~{engine}"]).actor_rollout_ref == (
        Config().actor_rollout_ref
    )
    assert "actor_rollout_ref.rollout.load_format" in refusal(folder / "main.yaml", given[0])


@pytest.mark.parametrize("name", ["main", "base"])
def test_overrides_mean_the_same_with_and_without_defaults(folder: Path, name: str) -> None:
    path = folder / f"{name}.yaml"
    given = ["run.name=z", "+data.limit=3", "++judge.workers=7", "sandbox.url=http://h/?a=b"]
    config = load_config(path, given)
    assert (config.run.name, config.data.limit, config.judge.workers) == ("z", 3, 7)
    assert config.sandbox.url == "http://h/?a=b"
    assert load_config(path, ["~judge"]).judge == Config().judge
    assert load_config(path, ["~judge.workers"]).judge.workers is None
    assert load_config(path, ["~judge", "judge.max_attempts=2"]).judge.workers is None


@pytest.mark.parametrize("name", ["main", "base"])
@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("~judg", "has no judg"),
        ("+judge", "is not key=value"),
    ],
)
def test_an_override_that_does_not_fit(folder: Path, name: str, override: str, said: str) -> None:
    assert said in refusal(folder / f"{name}.yaml", override)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("defaults: 5", "defaults must be a list"),
        ("defaults: [nothere]", "Could not load 'nothere'"),
        ("defaults: [{engine: nope}]", "Available options in 'engine': sglang vllm"),
        ("defaults: [a]", "include each other"),
        ("defaults: [base]\nhydra: {searchpath: [pkg://no.such.package]}", None),
        ("defaults: [x]\nhydra: {searchpath: [pkg://no.such.package]}", "no.such.package is not"),
    ],
)
def test_what_cannot_be_composed_is_one_line(folder: Path, text: str, said: str | None) -> None:
    path = write(folder, "a", text)
    if said is None:
        assert load_config(path).run.name == "base"
        return
    message = refusal(path)
    assert said in message
    assert "provider=schema" not in message


def test_a_file_that_begins_with_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    more = "actor_rollout_ref: {rollout: {response_length: 4096}}\n"
    path = write(tmp_path, "mine", f"defaults: [phase0_eval, _self_]\n{more}")
    config, baseline = load_config(path), load_config("configs/phase0_eval.yaml")
    assert config.actor_rollout_ref.rollout.response_length == 4096
    assert config.judge == baseline.judge
    back = ["actor_rollout_ref.rollout.response_length=2048"]
    assert load_config(path, back) == baseline


def test_the_working_directorys_configs_are_found(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path_factory.mktemp("it's, a [folder]")
    write(work / "configs", "house", "judge: {workers: 9}\n")
    path = write(folder, "mine", "defaults: [house, base, _self_]\njudge: {max_attempts: 1}\n")
    assert "Could not load 'house'" in refusal(path)
    monkeypatch.chdir(work)
    config = load_config(path)
    assert (config.judge.workers, config.judge.max_attempts) == (2, 1)
