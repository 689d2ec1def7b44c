"""Recipes for training: composed with verl's own configuration, they start from the baseline."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from services.training.comparison import compare
from services.training.mistakes import find_mistakes
from services.training.trainer_config import Finding, Kind, TrainerConfig, read_trainer_config
from shared.config import load_config
from shared.run_record import RunMeta, RunRecord
from tests.cli.commands import ROOT

RECIPES = ROOT / "configs" / "rl"
NAMES = ("grpo", "ppo", "multi_turn")
ROLLOUT = "actor_rollout_ref.rollout"


def baseline() -> RunRecord:
    config = load_config(ROOT / "configs/phase0_eval.yaml", [])
    meta = RunMeta(config=config, protocol=config.protocol(), model=config.generation.model)
    return RunRecord.of("baseline", meta, [])


def weighty(config: TrainerConfig) -> list[Finding]:
    findings = [*find_mistakes(config), *compare(config, baseline())]
    return [finding for finding in findings if finding.kind is not Kind.EXPECTED]


def test_every_recipe_is_tested() -> None:
    documents = {path.stem: yaml.safe_load(path.read_text()) for path in RECIPES.glob("*.yaml")}
    assert {name for name, document in documents.items() if "defaults" in document} == set(NAMES)


@pytest.fixture(scope="module")
def resolved(verl_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recipes as verl resolves them; its imports take longer than that."""
    script, out = Path(__file__).with_name("compose_recipe.py"), tmp_path_factory.mktemp("recipes")
    done = subprocess.run(
        [verl_python, script, RECIPES, out, *NAMES],
        env={**os.environ, "PWD": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(params=NAMES)
def recipe(request: pytest.FixtureRequest, resolved: Path) -> TrainerConfig:
    return read_trainer_config(str(resolved / f"{request.param}.yaml"))


@pytest.mark.verl
@pytest.mark.timeout(300)
def test_a_recipe_starts_from_the_baseline(recipe: TrainerConfig) -> None:
    tools = recipe.get(f"{ROLLOUT}.agent.default_agent_loop") == "tool_agent"
    kinds = {finding.subject: finding.kind for finding in weighty(recipe)}
    wanted = {
        f"{ROLLOUT}.agent.default_agent_loop": Kind.DIFFERENCE,
        f"{ROLLOUT}.response_length": Kind.DIFFERENCE,
        "data.max_response_length": Kind.DIFFERENCE,
    }
    assert kinds == (wanted if tools else {})


@pytest.mark.verl
@pytest.mark.timeout(300)
def test_a_recipe_has_reward_checkpoints_and_tracking(recipe: TrainerConfig) -> None:
    assert recipe.get("reward.custom_reward_function.path") == "pkg://plumbline_reward"
    assert recipe.get("reward.custom_reward_function.name") == "compute_score"
    assert recipe.get("trainer.logger") == ["console", "wandb"]
    assert recipe.number("trainer.save_freq") == 20
    assert recipe.number("trainer.test_freq") == 10
    assert recipe.number("transfer_queue.backend.SimpleStorage.num_data_storage_units") == 2
    assert recipe.text(f"{ROLLOUT}.name") == "vllm"
    estimator = recipe.get("algorithm.adv_estimator")
    assert recipe.number(f"{ROLLOUT}.n") == (1 if estimator == "gae" else 8)
    if path := recipe.text(f"{ROLLOUT}.multi_turn.tool_config_path"):
        assert Path(path).is_file()
        assert Path(recipe.text(f"{ROLLOUT}.multi_turn.function_tool_path")).is_file()
