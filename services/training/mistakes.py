"""Mistakes in a configuration of verl that it accepts without a word.

Source: verl 0.9.1, verl/trainer/main_ppo.py, verl/trainer/ppo and verl/experimental.
"""

from collections.abc import Iterator

from services.training.trainer_config import Finding, Kind, TrainerConfig

REWARD = "pkg://plumbline_reward"
_FUNCTION = "reward.custom_reward_function"
_ROLLOUT = "actor_rollout_ref.rollout"
_TURNS = f"{_ROLLOUT}.multi_turn"
TOOLS = (f"{_TURNS}.tool_config_path", f"{_TURNS}.function_tool_path")
_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
# verl's default of 256 characters cuts the part of a traceback that says what is wrong.
_LEAST_TOOL_RESPONSE = 1024
# Actor and reference, rollout, reward model: verl's RayResourcePool reserves one for each.
_CPUS_PER_GPU = 3
_GROUPED = ("grpo", "grpo_passk", "grpo_vectorized", "gdpo", "rloo", "rloo_vectorized", "opo")
_MOVED = {
    "custom_reward_function.path": f"{_FUNCTION}.path",
    "custom_reward_function.name": f"{_FUNCTION}.name",
    "sandbox_fusion.url": "reward.sandbox_fusion.url",
    "sandbox_fusion.max_concurrent": "reward.sandbox_fusion.max_concurrent",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.enable": "reward.reward_model.enable",
}


def find_mistakes(trainer: TrainerConfig) -> Iterator[Finding]:
    """Yield what verl would do otherwise than its configuration seems to say."""
    mistakes = (*_ignored_keys(trainer), *_reward(trainer), *_rollout(trainer))
    for subject, text in mistakes:
        yield Finding(Kind.MISTAKE, subject, trainer.get(subject), None, text)
    path = trainer.text(f"{_FUNCTION}.path")
    if path and not _is_ours(path):
        text = (
            "another function than the run's judge. Its result needs acc beside score: validation "
            "counts a sample without it as wrong"
        )
        yield Finding(Kind.DIFFERENCE, f"{_FUNCTION}.path", path, REWARD, text)
    if _has_tools(trainer):
        subject = f"{_ROLLOUT}.agent.default_agent_loop"
        text = "validation may call tools too, which is another measurement than a run without them"
        yield Finding(Kind.DIFFERENCE, subject, trainer.get(subject), "single_turn_agent", text)
    if trainer.get("data.filter_overlong_prompts") is not False:
        text = "problems with a prompt beyond data.max_prompt_length are left out of both files"
        yield Finding(Kind.EXPECTED, "data.filter_overlong_prompts", True, None, text)
    yield from _cpus(trainer)


_Mistakes = Iterator[tuple[str, str]]
"""Keys and what is wrong with their values."""


def _ignored_keys(trainer: TrainerConfig) -> _Mistakes:
    for subject, now in _MOVED.items():
        if trainer.get(subject) is not None:
            yield subject, f"main_ppo ignores this key; it is {now} now"


def _reward(trainer: TrainerConfig) -> _Mistakes:
    path, manager = trainer.text(f"{_FUNCTION}.path"), trainer.get("reward.reward_manager.name")
    if not path:
        yield (
            f"{_FUNCTION}.path",
            "verl's own scorers judge: they count the first ten cases, and failures of the sandbox "
            f"as wrong answers; set {_FUNCTION}.path={REWARD}",
        )
    if _is_ours(path) and trainer.get(f"{_FUNCTION}.name") != "compute_score":
        text = "the reward loop awaits compute_score; the other functions are for other callers"
        yield f"{_FUNCTION}.name", text
    if manager == "remote":
        text = "refuses coroutines, and compute_score is one; use naive"
        yield "reward.reward_manager.name", text
    if manager in ("prime", "batch"):
        yield "reward.reward_manager.name", "a manager of earlier versions; use naive"
    if path and trainer.get("reward.sandbox_fusion.url"):
        yield "reward.sandbox_fusion.url", "has no effect beside a custom reward function"


def _rollout(trainer: TrainerConfig) -> _Mistakes:
    n = trainer.number(f"{_ROLLOUT}.n") or 1
    if trainer.get("algorithm.adv_estimator") in _GROUPED and n < 2:
        text = "an answer is compared with others of its problem, so its advantage is always 0"
        yield f"{_ROLLOUT}.n", text
    if n > 1 and trainer.number(f"{_ROLLOUT}.temperature") == 0:
        yield f"{_ROLLOUT}.temperature", "greedy: the n answers of a problem are the same one"
    validation = f"{_ROLLOUT}.val_kwargs"
    greedy = trainer.number(f"{validation}.temperature") == 0
    if not greedy and trainer.get(f"{validation}.do_sample") is False:
        text = "is ignored: the agent loops sample at val_kwargs.temperature"
        yield f"{validation}.do_sample", text
    longest = trainer.number(f"{_TURNS}.max_tool_response_length")
    if _has_tools(trainer) and longest is not None and longest < _LEAST_TOOL_RESPONSE:
        text = f"cuts a tool's answer to so many characters; {_LEAST_TOOL_RESPONSE} or more"
        yield f"{_TURNS}.max_tool_response_length", text
    if _has_tools(trainer) and not any(map(trainer.get, TOOLS)):
        yield TOOLS[0], "no tools: the model is told of none"
    if trainer.get("data.filter_overlong_prompts") is False:
        text = "a prompt longer than rollout.prompt_length loses its beginning; set it to true"
        yield "data.filter_overlong_prompts", text
    if (trainer.number("trainer.save_freq") or -1) < 1:
        text = "no checkpoint is written, so there is nothing to give to plumb gate"
        yield "trainer.save_freq", text


def _is_ours(path: str) -> bool:
    return path.replace("/", ".").removeprefix("pkg:..").split(".")[0] == "plumbline_reward"


def _has_tools(trainer: TrainerConfig) -> bool:
    loop = trainer.get(f"{_ROLLOUT}.agent.default_agent_loop")
    return loop == "tool_agent" or trainer.get(f"{_TURNS}.enable") is True


def _cpus(trainer: TrainerConfig) -> Iterator[Finding]:
    """Compare the CPUs that Ray reserves: per GPU, storage unit, and for controller and driver.

    Workers of reward and agents are not counted: Ray wants a free CPU to start each, and then lets
    it go.
    """
    gpus = (trainer.number("trainer.n_gpus_per_node") or 0) * (
        trainer.number("trainer.nnodes") or 1
    )
    reserved = 2 + gpus * _CPUS_PER_GPU + (trainer.number(_UNITS) or 0)
    subject = "ray_kwargs.ray_init.num_cpus"
    cpus = trainer.number(subject)
    if cpus is None or cpus < reserved:
        text = f"training reserves {reserved:.0f} CPUs; with fewer verl waits without a word"
        kind = Kind.EXPECTED if cpus is None else Kind.MISTAKE
        yield Finding(kind, subject, trainer.get(subject), None, f"{text}; lower {_UNITS}")
