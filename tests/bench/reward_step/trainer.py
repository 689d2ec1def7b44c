"""verl's GRPO with one of two rewards: its data, its settings, its process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pyarrow
import pyarrow.parquet

from shared.config import Config
from shared.datasets import read_datasets
from shared.prompts import chat_messages
from shared.reference import reference_of
from shared.schemas import Problem

REPOSITORY = Path(__file__).resolve().parents[3]
CONTESTS = [
    REPOSITORY / "demo" / "data" / f"codecontests_{split}.parquet" for split in ("test", "valid")
]
OURS, VERLS = "plumbline", "verl"
_MODULE = "tests.bench.reward_step.timed"


@dataclass(frozen=True, slots=True)
class Size:
    """Steps of a run, prompts in each, completions per prompt."""

    steps: int
    prompts: int
    n: int


def write_rows(path: Path, size: Size, *, reference: bool) -> None:
    """Write training rows of the demo's contests, repeated until there are enough.

    Args:
        path: Parquet file.
        size: Of the run.
        reference: Ground truth as Plumbline's reference instead of the tests themselves.
    """
    problems = read_datasets([str(file) for file in CONTESTS])
    rows = [_row(index, each, reference=reference) for index, each in enumerate(problems)]
    wanted = islice(cycle(rows), size.steps * size.prompts)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(wanted)), path)


def _row(index: int, problem: Problem, *, reference: bool) -> dict[str, object]:
    truth = reference_of(problem).text if reference else problem.ground_truth
    return {
        # The source by which verl sends a completion to its sandbox.
        "data_source": problem.dataset if reference else "codecontests",
        "prompt": chat_messages(problem, Config()),
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": index, "split": "train"},
    }


def overrides(model: Path, rows: Path, folder: Path, size: Size) -> list[str]:
    """Settings of ``main_ppo`` that both rewards share."""
    loops = folder / "agent_loops.yaml"
    loops.write_text(f"- {{name: timed, _target_: {_MODULE}.TimedAgentLoop}}\n")
    return [
        "algorithm.adv_estimator=grpo",
        f"data.train_files={rows}",
        f"data.val_files={rows}",
        f"data.train_batch_size={size.prompts}",
        "data.max_prompt_length=1024",
        "data.max_response_length=512",
        "data.dataloader_num_workers=0",
        f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.model.use_remove_padding=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={size.prompts}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64",
        "actor_rollout_ref.actor.use_kl_loss=False",
        "actor_rollout_ref.actor.optim.lr=1e-5",
        "actor_rollout_ref.rollout.name=vllm",
        f"actor_rollout_ref.rollout.n={size.n}",
        "actor_rollout_ref.rollout.temperature=1.0",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
        "actor_rollout_ref.rollout.enforce_eager=True",
        "actor_rollout_ref.rollout.max_num_seqs=256",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64",
        "actor_rollout_ref.rollout.agent.num_workers=2",
        "actor_rollout_ref.rollout.agent.default_agent_loop=timed",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
        "reward.num_workers=8",
        "reward.reward_manager.source=importlib",
        "reward.reward_manager.name=TimedRewardManager",
        f"reward.reward_manager.module.path=pkg://{_MODULE}",
        # Each storage unit and the controller take a CPU; where there are few, verl hangs.
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "+ray_kwargs.ray_init.include_dashboard=False",
        "ray_kwargs.ray_init.num_cpus=32",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.logger=[console,file]",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        "trainer.total_epochs=1",
        f"trainer.total_training_steps={size.steps}",
    ]


def reward_overrides(reward: str, sandbox: str) -> list[str]:
    """The settings in which the two rewards differ."""
    if reward == OURS:
        return ["reward.custom_reward_function.path=pkg://plumbline_reward"]
    return [f"reward.sandbox_fusion.url={sandbox}/run_code"]


def environment(folder: Path, service: str | None) -> dict[str, str]:
    paths = [str(REPOSITORY), str(REPOSITORY / "clients" / "reward")]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    added = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PLUMBLINE_BENCH_REWARD_LOG": str(folder / "rewards.jsonl"),
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "HF_HUB_OFFLINE": "1",
        "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
    }
    return {**os.environ, **added, **({"PLUMBLINE_REWARD_URL": service} if service else {})}


def train(
    python: str, settings: Sequence[str], variables: Mapping[str, str], log: Path, seconds: float
) -> int | None:
    """Run ``main_ppo``; returns its exit code, or None where it was ended after ``seconds``."""
    command = [python, "-m", "verl.trainer.main_ppo", *settings]
    log.with_name("command.json").write_text(json.dumps(command, indent=1))
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=dict(variables), stdout=output, stderr=subprocess.STDOUT, cwd=log.parent,
            start_new_session=True,
        )  # fmt: skip
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a trainer with all that it started."""
    for sign, grace in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            return
        give_up = time.monotonic() + grace
        while process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.1)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def default_python() -> str:
    return os.environ.get("VERL_PYTHON", sys.executable)
