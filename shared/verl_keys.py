"""Keys of verl's configurations: which ones are read here under another name, and how.

A key is *mapped* to one of ours, *refused* because the results would not be those that were asked
for, or *recorded* because it has no effect here. An entry speaks for all keys below its own, unless
they have entries of their own. Keys without an entry have the same name here.
:func:`translate` reads documents by these tables; two names of one key must agree.

Source of the keys: verl 0.9.1, verl/trainer/config; verl 0.5.0's generation.yaml.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Self

from pydantic import JsonValue

from shared.errors import ConfigError
from shared.protocol import shown
from shared.redaction import REDACTED, is_secret_variable

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
_RAY = "ray_kwargs.ray_init"
COMPLETIONS = "data.completions"
"""The key that ``data.path`` means in a configuration of main_eval."""


def _by_key(table: dict[str, str]) -> dict[str, str]:
    """Turn a table of texts with the keys that they are about into a table by key."""
    return {key: text for text, keys in table.items() for key in keys.split()}


# Other places of whole sections, as older configurations have them.
SECTIONS = {
    "rollout": _ROLLOUT,
    "model": _MODEL,
    "actor": "actor_rollout_ref.actor",
    "ray_init": _RAY,
    "reward.custom_reward_function": "custom_reward_function",
    "reward.sandbox_fusion": "sandbox_fusion",
}
MAPPED = {
    "data.path": "data.eval_files",
    "data.train_files": "data.eval_files",
    "data.n_samples": f"{_ROLLOUT}.n",
    "data.max_prompt_length": f"{_ROLLOUT}.prompt_length",
    "data.max_response_length": f"{_ROLLOUT}.response_length",
    f"{_RAY}.runtime_env.env_vars": "generation.verl.env_vars",
    f"{_RAY}.address": "generation.verl.ray_address",
    "sandbox_fusion.url": "sandbox.url",
    "sandbox_fusion.max_concurrent": "sandbox.max_concurrency",
    "sandbox_fusion.memory_limit_mb": "sandbox.memory_limit_mb",
    "max_concurrent_requests": "generation.concurrency",
}
REFUSED = _by_key(
    {
        "answers would go on after their end, which measures other texts; use false": (
            f"{_ROLLOUT}.ignore_eos"
        ),
        "columns have verl's own names here; rename the column": (
            "data.response_key data.data_source_key data.reward_model_key"
        ),
        "it changes the prompts; write the template into a file, and name it in "
        "generation.verl.chat_template": f"{_MODEL}.custom_chat_template",
        "the engine reads configuration and tokenizer from the model's folder; put them there": (
            f"{_MODEL}.hf_config_path {_MODEL}.tokenizer_path"
        ),
        f"give the engine its options in {_ROLLOUT}.engine_kwargs, such as vllm.hf_overrides, "
        "vllm.speculative_config or vllm.enable_expert_parallel": (
            f"{_MODEL}.override_config {_MODEL}.mtp.enable_rollout {_ROLLOUT}.expert_parallel_size"
        ),
        "no module is imported into the engine; install it as a plugin of the engine": (
            f"{_MODEL}.external_lib"
        ),
        "no adapter is loaded; merge it into the weights, and name their folder": (
            f"{_MODEL}.lora_adapter_path {_MODEL}.lora.adapter_path"
        ),
        "quantized weights are another model; name a quantized model's folder, or set "
        f"{_ROLLOUT}.engine_kwargs.vllm.quantization": (
            f"{_ROLLOUT}.quantization {_ROLLOUT}.quantization_config_file {_ROLLOUT}.qat.enable"
        ),
        "the engines are vllm and sglang": f"{_ROLLOUT}.engine_kwargs.trtllm",
        "a run judges by judge.method, and calls no other scorer; remove the key, or use "
        "plumbline_reward (docs/training.md)": "custom_reward_function.path",
    }
)


RECORDED = _by_key(
    {
        "the sets to evaluate are data.train_files or data.eval_files": "data.val_files",
        "every problem is used; data.limit takes the first ones": (
            "data.train_max_samples data.val_max_samples"
        ),
        f"set {_MODEL}.trust_remote_code": "data.trust_remote_code",
        "an answer is one completion, without tools, as in verl's main_generation_server": (
            f"data.tool_config_path data.function_tool_path {_ROLLOUT}.multi_turn {_ROLLOUT}.agent"
        ),
        "no log-probabilities are requested: they cost throughput, which is measured, and the "
        "completions are the same": f"{_ROLLOUT}.calculate_log_probs {_ROLLOUT}.logprobs_mode",
        "generation.deterministic=true chooses kernels whose results do not depend on the batch": (
            f"{_ROLLOUT}.full_determinism"
        ),
        f"a run samples by {_ROLLOUT}.temperature, top_p, top_k and n": f"{_ROLLOUT}.val_kwargs",
        "replicas take the GPUs of trainer.nnodes and trainer.n_gpus_per_node": (
            f"{_ROLLOUT}.nnodes {_ROLLOUT}.n_gpus_per_node"
        ),
        "Ray, if Plumbline starts it, gets the GPUs and four logical CPUs for each": _RAY,
        "a run judges by judge.method": (
            "custom_reward_function reward reward_model sandbox_fusion data.reward_fn_key"
        ),
        "a run has run.name, and wandb.project, wandb.name and wandb.enabled": (
            "trainer.project_name trainer.experiment_name trainer.logger "
            "trainer.log_val_generations"
        ),
        "a run has its own folder (output.dir)": "hydra",
    }
)
# Keys below a section that a run does not use.
_UNUSED = {
    "data": (
        "batch_size gen_batch_size val_batch_size filter_overlong_prompts "
        "filter_overlong_prompts_workers truncation image_key video_key audio_key "
        "image_patch_size return_multi_modal_inputs mm_processor_kwargs use_shm "
        "return_raw_input_ids return_raw_chat return_full_prompt custom_cls "
        "dataloader_num_workers train_batch_size shuffle seed validation_shuffle sampler datagen"
    ),
    _MODEL: (
        "lora lora_alpha target_modules exclude_modules enable_gradient_checkpointing "
        "enable_activation_offload use_remove_padding use_liger use_fused_kernels "
        "fused_kernel_options tiled_mlp mtp use_shm"
    ),
    _ROLLOUT: (
        "disaggregation router_config_path cudagraph_capture_sizes scheduling_policy "
        "skip_tokenizer_init free_cache_engine layered_summon log_prob_micro_batch_size "
        "log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz "
        "log_prob_max_token_len_per_gpu over_sample_rate multi_stage_wake_up checkpoint_engine "
        "enable_rollout_routing_replay moe_load_balance_metrics_interval enable_sleep_mode mtp "
        "qat trace prometheus profiler"
    ),
    "trainer": (
        "balance_batch total_epochs total_training_steps rollout_data_dir validation_data_dir "
        "save_freq esi_redundant_time resume_mode resume_from_path checkpoint_callback_class "
        "val_before_train val_only test_freq critic_warmup default_hdfs_dir default_local_dir "
        "del_local_ckpt_after_load max_actor_ckpt_to_keep max_critic_ckpt_to_keep "
        "ray_wait_register_center_timeout use_v1 v1 use_legacy_worker_impl"
    ),
    "actor_rollout_ref": "actor ref hybrid_engine nccl_timeout",
    "": (
        "ray_kwargs.timeline_json_file critic algorithm distillation transfer_queue skip "
        "model_engine async_training global_profiler"
    ),
}
RECORDED |= {
    f"{section}.{name}".removeprefix("."): "a run does not use it"
    for section, names in _UNUSED.items()
    for name in names.split()
}
# Values with which verl does what happens here anyway, besides null, false and empty ones. Texts
# are patterns.
USUAL: dict[str, JsonValue] = {
    "data.response_key": "responses",
    "data.data_source_key": "data_source",
    "data.reward_model_key": "reward_model",
    "data.reward_fn_key": "data_source",
    "data.train_max_samples": -1,
    "data.val_max_samples": -1,
    f"{_ROLLOUT}.logprobs_mode": "processed_logprobs",
    f"{_ROLLOUT}.expert_parallel_size": 1,
    f"{_ROLLOUT}.scheduling_policy": "fcfs",
    "custom_reward_function.path": "*plumbline_reward*",
    "custom_reward_function.name": "compute_score",
}


# Sections that are walked through; what lies below the others is one value.
_WALKED = frozenset(
    name[:end]
    for name in (*SECTIONS, *SECTIONS.values(), *MAPPED, *MAPPED.values(), *REFUSED, *RECORDED)
    for end, letter in enumerate(name)
    if letter == "."
)
# The class that verl makes of a section.
_CLASS = "_target_"
_MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a document.

    ``key`` is verl's present name of ``source``, ``entry`` the key of a table that decided; empty
    if none did. ``target`` is our key; None if the value has no effect.
    """

    source: str
    key: str
    entry: str
    target: str | None
    value: Any

    @classmethod
    def of(cls, source: str, value: object, *, of_evaluation: bool = False) -> Self:
        """Find the place of a value; ``of_evaluation``: in a configuration of main_eval."""
        section = next((parent for parent in _with_parents(source) if parent in SECTIONS), "")
        key = SECTIONS[section] + source.removeprefix(section) if section else source
        for name in _with_parents(key):
            if name in MAPPED:
                ours = COMPLETIONS if name == "data.path" and of_evaluation else MAPPED[name]
                target = None if value is None else ours + key.removeprefix(name)
                return cls(source, key, name, target, value)
            if name in REFUSED or name in RECORDED:
                return cls(source, key, name, None, value)
        return cls(source, key, section, key, value)

    @property
    def says_nothing(self) -> bool:
        usual = USUAL.get(self.key)
        if isinstance(usual, str) and isinstance(self.value, str):
            return not self.value or fnmatchcase(self.value, usual)
        return not self.value or self.value == usual

    @property
    def section(self) -> str:
        """The key that the entry is about, as the document has it."""
        if self.entry in SECTIONS:
            return self.entry
        return self.source.removesuffix(self.key.removeprefix(self.entry)) or self.source


def canonical(key: str) -> str:
    """Our name of a key of verl; any other key as it is."""
    return _Place.of(key, "").target or key


def translate(document: Any, overridden: Sequence[str] = ()) -> tuple[Any, dict[str, JsonValue]]:  # noqa: ANN401 - parsed YAML
    """Replace verl's keys in a document by ours.

    ``overridden`` are dotted keys from the command line; they count where a file differs. Returns
    also verl's keys that are not ours under the same name, with their values, but no secret.

    Raises:
        ConfigError: A value is refused, or two names of a key have different values.
    """
    if not isinstance(document, Mapping):
        return document, {}
    values = list(_values(document))
    of_evaluation = any(key == "data.response_key" for key, _ in values)
    places = [_Place.of(key, value, of_evaluation=of_evaluation) for key, value in values]
    refused = [place for place in places if place.entry in REFUSED and not place.says_nothing]
    if refused:
        reasons = (f"{p.source}={shown(p.value)}: {REFUSED[p.entry]}" for p in refused)
        raise ConfigError("; ".join(reasons))
    claims: defaultdict[str, list[_Place]] = defaultdict(list)
    for place in places:
        if place.target is not None:
            claims[place.target].append(place)
    result: dict[str, Any] = {}
    for target, claimants in claims.items():
        _put(result, target, _choose(claimants, overridden))
    recorded = (place for place in places if place.entry)
    return result, {place.source: _without_secrets(place.source, place.value) for place in recorded}


def notices(verl_keys: Mapping[str, JsonValue]) -> list[str]:
    """Describe keys of a translation that have another name here, or no effect."""
    renamed: dict[str, str] = {}
    without_effect: defaultdict[str, dict[str, None]] = defaultdict(dict)
    of_evaluation = "data.response_key" in verl_keys
    for key, value in verl_keys.items():
        place = _Place.of(key, value, of_evaluation=of_evaluation)
        if place.target is not None and value is not None:
            renamed[place.section] = SECTIONS.get(place.entry, place.target)
        elif value is not None and not place.says_nothing:
            text = RECORDED.get(place.entry) or REFUSED[place.entry]
            without_effect[text][place.section] = None
    read = [f"{name} is read as {target}" for name, target in renamed.items()]
    lines = [f"config: {', '.join(read)}"] if read else []
    for text, sections in without_effect.items():
        named = ", ".join([*sections][:_MAX_NAMED])
        if (more := len(sections) - _MAX_NAMED) > 0:
            named += f" and {more} more (run.verl_keys in run.json)"
        lines.append(f"config: {named}: no effect here; {text}")
    return lines


def _values(document: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all keys that a table could name, dotted, with their values."""
    for name, value in document.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and _Place.of(key, value).key in _WALKED:
            yield from _values(value, f"{key}.")
        elif name != _CLASS:
            yield key, value


def _with_parents(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]


def _put(document: dict[str, Any], key: str, value: object) -> None:
    """Set a value in nested mappings; where a part is no mapping, validation has the last word."""
    *sections, name = key.split(".")
    for section in sections:
        document = document.setdefault(section, {})
        if not isinstance(document, dict):
            return
    empty = isinstance(value, Mapping) and not value
    document.setdefault(name, {} if empty else value)


def _choose(claimants: Sequence[_Place], overridden: Sequence[str]) -> Any:  # noqa: ANN401 - parsed YAML
    """The value that counts for a key of ours.

    Raises:
        ConfigError: There are different values of equal standing.
    """

    def standing(place: _Place) -> tuple[bool, ...]:
        return (
            not _is_overridden(place.source, overridden),
            place.value is None,
            # As in verl, whose rollout has one sample unless data.n_samples has more, and whose
            # own lengths count before those of the data.
            place.key.endswith(".rollout.n") and place.value == 1,
            place.entry in ("data.max_prompt_length", "data.max_response_length"),
        )

    best = min(map(standing, claimants))
    first, *others = (place for place in claimants if standing(place) == best)
    if other := next((place for place in others if place.value != first.value), None):
        raise ConfigError(
            f"{first.source}={shown(first.value)} and {other.source}={shown(other.value)} "
            "contradict each other; keep one of them"
        )
    return first.value


def _is_overridden(key: str, overridden: Sequence[str]) -> bool:
    dotted = f"{key}."
    return any(f"{o}.".startswith(dotted) or dotted.startswith(f"{o}.") for o in overridden)


def _without_secrets(key: str, value: Any) -> JsonValue:  # noqa: ANN401 - parsed YAML
    """A value as it may be recorded: verl's keys may be anything, passwords too."""
    if isinstance(value, Mapping):
        return {str(name): _without_secrets(str(name), inner) for name, inner in value.items()}
    secret = isinstance(value, str) and value and is_secret_variable(key.rpartition(".")[2], value)
    return REDACTED if secret else value
