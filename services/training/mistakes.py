"""Mistakes in a configuration of verl that it accepts without a word.

Source: verl 0.9.1, verl/trainer/main_ppo.py, verl/trainer/ppo and verl/experimental.
"""

from collections.abc import Iterator

from services.training.findings import Finding, Kind
from services.training.trainer_config import TrainerConfig

REWARD = "pkg://plumbline_reward"
_FUNCTION = "reward.custom_reward_function"
_ROLLOUT = "actor_rollout_ref.rollout"
_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
# verl's default of 256 characters cuts the part of a traceback that says what is wrong.
_LEAST_TOOL_RESPONSE = 1024
# Actor and reference, rollout, reward model: verl's RayResourcePool reserves one for each.
_CPUS_PER_GPU = 3
_GROUPED = ("grpo", "grpo_passk", "grpo_vectorized", "gdpo", "rloo", "rloo_vectorized", "opo")


def find_mistakes(trainer: TrainerConfig) -> Iterator[Finding]:
    """Yield what verl would do otherwise than its configuration seems to say."""
    yield from _ignored_keys(trainer)
    yield from _reward(trainer)
    yield from _rollout(trainer)
    yield from _tools(trainer)
    yield from _trainer(trainer)


def _mistake(subject: str, trainer: TrainerConfig, text: str) -> Finding:
    return Finding(Kind.MISTAKE, subject, trainer.get(subject), None, text)


def _ignored_keys(trainer: TrainerConfig) -> Iterator[Finding]:
    moved = {
        "custom_reward_function.path": f"{_FUNCTION}.path",
        "custom_reward_function.name": f"{_FUNCTION}.name",
        "sandbox_fusion.url": "reward.sandbox_fusion.url",
        "sandbox_fusion.max_concurrent": "reward.sandbox_fusion.max_concurrent",
        "reward_model.reward_manager": "reward.reward_manager.name",
        "reward_model.num_workers": "reward.num_workers",
        "reward_model.enable": "reward.reward_model.enable",
    }
    for subject, now in moved.items():
        if trainer.get(subject) is not None:
            yield _mistake(subject, trainer, f"main_ppo ignores this key; it is {now} now")


def _reward(trainer: TrainerConfig) -> Iterator[Finding]:
    path, name = trainer.text(f"{_FUNCTION}.path"), trainer.get(f"{_FUNCTION}.name")
    if not path:
        text = (
            "verl's own scorers judge: they count the first ten cases, and failures of the sandbox "
            f"as wrong answers; set {_FUNCTION}.path={REWARD}"
        )
        yield _mistake(f"{_FUNCTION}.path", trainer, text)
    elif not _is_ours(path):
        text = (
            "another function than the run's judge. Its result needs acc beside score: validation "
            "counts a sample without it as wrong"
        )
        yield Finding(Kind.DIFFERENCE, f"{_FUNCTION}.path", path, REWARD, text)
    elif name != "compute_score":
        text = "the reward loop awaits compute_score; the other functions are for other callers"
        yield _mistake(f"{_FUNCTION}.name", trainer, text)
    manager = trainer.get("reward.reward_manager.name")
    if manager == "remote":
        text = "refuses coroutines, and compute_score is one; use naive"
        yield _mistake("reward.reward_manager.name", trainer, text)
    elif manager in ("prime", "batch"):
        text = "a manager of earlier versions; use naive"
        yield _mistake("reward.reward_manager.name", trainer, text)
    if path and trainer.get("reward.sandbox_fusion.url"):
        text = "has no effect beside a custom reward function"
        yield _mistake("reward.sandbox_fusion.url", trainer, text)


def _is_ours(path: str) -> bool:
    return path.replace("/", ".").removeprefix("pkg:..").split(".")[0] == "plumbline_reward"


def _rollout(trainer: TrainerConfig) -> Iterator[Finding]:
    n = trainer.number(f"{_ROLLOUT}.n") or 1
    grouped = trainer.get("algorithm.adv_estimator") in _GROUPED
    if grouped and n < 2:
        text = "an answer is compared with others of its problem, so its advantage is always 0"
        yield _mistake(f"{_ROLLOUT}.n", trainer, text)
    if n > 1 and trainer.number(f"{_ROLLOUT}.temperature") == 0:
        text = "greedy: the n answers of a problem are the same one"
        yield _mistake(f"{_ROLLOUT}.temperature", trainer, text)
    validation = f"{_ROLLOUT}.val_kwargs"
    greedy = trainer.number(f"{validation}.temperature") == 0
    if not greedy and trainer.get(f"{validation}.do_sample") is False:
        text = "is ignored: the agent loops sample at val_kwargs.temperature"
        yield _mistake(f"{validation}.do_sample", trainer, text)


def _tools(trainer: TrainerConfig) -> Iterator[Finding]:
    turns = f"{_ROLLOUT}.multi_turn"
    subject = f"{_ROLLOUT}.agent.default_agent_loop"
    if trainer.get(subject) != "tool_agent" and trainer.get(f"{turns}.enable") is not True:
        return
    longest = trainer.number(f"{turns}.max_tool_response_length")
    if longest is not None and longest < _LEAST_TOOL_RESPONSE:
        text = f"cuts a tool's answer to so many characters; {_LEAST_TOOL_RESPONSE} or more"
        yield _mistake(f"{turns}.max_tool_response_length", trainer, text)
    paths = (f"{turns}.tool_config_path", f"{turns}.function_tool_path")
    if not any(trainer.get(path) for path in paths):
        text = "no tools: the model is told of none"
        yield _mistake(paths[0], trainer, text)
    text = "validation may call tools too, which is another measurement than a run without them"
    yield Finding(Kind.DIFFERENCE, subject, trainer.get(subject), "single_turn_agent", text)


def _trainer(trainer: TrainerConfig) -> Iterator[Finding]:
    if trainer.get("data.filter_overlong_prompts") is False:
        text = "a prompt longer than rollout.prompt_length loses its beginning; set it to true"
        yield _mistake("data.filter_overlong_prompts", trainer, text)
    else:
        text = "problems with a prompt beyond data.max_prompt_length are left out of both files"
        yield Finding(Kind.EXPECTED, "data.filter_overlong_prompts", True, None, text)
    if (trainer.number("trainer.save_freq") or -1) < 1:
        text = "no checkpoint is written, so there is nothing to give to plumb gate"
        yield _mistake("trainer.save_freq", trainer, text)
    reserved = _reserved(trainer)
    there = trainer.number("ray_kwargs.ray_init.num_cpus")
    subject, why = "ray_kwargs.ray_init.num_cpus", "with fewer verl waits without a word"
    if there is not None and there < reserved:
        text = f"training reserves {reserved:.0f} CPUs; {why}; lower {_UNITS}"
        yield _mistake(subject, trainer, text)
    elif there is None:
        text = f"training reserves {reserved:.0f} CPUs; {why} ({_UNITS})"
        yield Finding(Kind.EXPECTED, subject, None, None, text)


def _reserved(trainer: TrainerConfig) -> float:
    """CPUs that Ray reserves: per GPU, storage unit, and for controller and driver.

    Workers of reward and agents are not counted: Ray wants a free CPU to start each, and then lets
    it go.
    """
    gpus = (trainer.number("trainer.n_gpus_per_node") or 0) * (
        trainer.number("trainer.nnodes") or 1
    )
    return 2 + gpus * _CPUS_PER_GPU + (trainer.number(_UNITS) or 0)
