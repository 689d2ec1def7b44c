"""Table of verl's configuration keys: what each means here.

``VERL_KEYS`` has a row for each key that is not ours under the same name (``SAME_NAMES``). A key
is *mapped* to one of ours, *recorded* because it has no effect here, or *refused* because the
results would not be those that were asked for. A row speaks for all keys below its own, unless
they have rows of their own. :mod:`shared.verl_translation` reads documents by it.

Source of the keys: verl 0.9.1, verl/trainer/config; verl 0.5.0's generation.yaml.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import JsonValue

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
Values = tuple[JsonValue, ...]


class Fate(StrEnum):
    """The treatment of a key of verl."""

    MAPPED = "mapped"
    RECORDED = "recorded"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class VerlKey:
    """A row of the table.

    Attributes:
        key: Dotted name.
        text: The reason, and what happens or is to be written instead.
        target: The key of ours, for a mapped key.
        unless: Values with which verl does what happens here anyway, so the key has nothing to
            tell; null never has. Texts are patterns.
        only: If not empty, the row is for these values only. Texts are patterns.
        beside: If not empty, the row is for documents that have this key.
        as_list: The target takes a list, the key a single value too.
        fallback: The target's own value counts if both are given.
        neutral: A value of the target that does not contradict the key.
    """

    key: str
    fate: Fate
    text: str = ""
    target: str = ""
    unless: Values = ()
    only: Values = ()
    beside: str = ""
    as_list: bool = False
    fallback: bool = False
    neutral: JsonValue = None


def _mapped(key: str, target: str, text: str = "") -> VerlKey:
    return VerlKey(key, Fate.MAPPED, text, target)


def _recorded(text: str, *keys: str, unless: Values = (), only: Values = ()) -> list[VerlKey]:
    return [VerlKey(key, Fate.RECORDED, text, unless=unless, only=only) for key in keys]


def _refused(text: str, *keys: str, unless: Values = (), only: Values = ()) -> list[VerlKey]:
    return [VerlKey(key, Fate.REFUSED, text, unless=unless, only=only) for key in keys]


def _below(section: str, names: str) -> list[str]:
    return [f"{section}.{name}" for name in names.split()]


# Keys that are ours too, under the same name.
SAME_NAMES = (
    *_below("trainer", "n_gpus_per_node nnodes device"),
    *_below(_MODEL, "path trust_remote_code load_tokenizer lora_rank"),
    *_below(
        _ROLLOUT,
        "name mode tensor_model_parallel_size data_parallel_size pipeline_model_parallel_size "
        "temperature top_p top_k do_sample n prompt_length response_length dtype "
        "gpu_memory_utilization load_format enforce_eager enable_prefix_caching "
        "enable_chunked_prefill max_num_seqs max_num_batched_tokens max_model_len "
        "disable_log_stats seed engine_kwargs.vllm engine_kwargs.sglang",
    ),
    *_below("data", "prompt_key output_path tokenizer apply_chat_template_kwargs"),
)
RANDOM_WEIGHTS = (
    "random weights, whose results mean nothing (of all settings this one matters most); use auto"
)
_OFF: Values = (False,)
_TRAINING = "only training uses it; a run trains nothing"
_ONE_TURN = "an answer is one completion, without tools, as in verl's main_generation_server"
_OBSERVED = "the generator and the aggregator have /metrics, the run its own report"
_COLUMN = "columns have verl's own names here; rename the column"
_RAY = "Ray, if Plumbline starts it, gets the GPUs and four logical CPUs for each"

# Refusals are reported in this order.
VERL_KEYS: tuple[VerlKey, ...] = (
    *_refused(RANDOM_WEIGHTS, f"{_ROLLOUT}.load_format", only=("dummy*",)),
    # Other places of the same keys
    _mapped("rollout", _ROLLOUT, "older configurations have it at the top"),
    _mapped("model", _MODEL, "older configurations have it at the top"),
    _mapped("actor", "actor_rollout_ref.actor", "older configurations have it at the top"),
    _mapped("ray_init", "ray_kwargs.ray_init", "older configurations have it at the top"),
    # What is evaluated
    replace(
        _mapped(
            "data.path",
            "data.completions",
            "in a configuration of main_eval: the responses to judge, by `plumb judge`",
        ),
        beside="data.response_key",
    ),
    replace(_mapped("data.path", "data.eval_files", "the set to evaluate"), as_list=True),
    replace(
        _mapped(
            "data.train_files",
            "data.eval_files",
            "main_generation_server reads the sets to evaluate from there",
        ),
        as_list=True,
    ),
    *_recorded("the sets to evaluate are data.train_files or data.eval_files", "data.val_files"),
    replace(_mapped("data.n_samples", f"{_ROLLOUT}.n", "samples per problem"), neutral=1),
    replace(
        _mapped(
            "data.max_prompt_length",
            f"{_ROLLOUT}.prompt_length",
            "verl takes the length from there if the rollout has none",
        ),
        fallback=True,
    ),
    replace(
        _mapped(
            "data.max_response_length",
            f"{_ROLLOUT}.response_length",
            "verl takes the length from there if the rollout has none",
        ),
        fallback=True,
    ),
    *_recorded(
        "requests are sent as the generator takes them, up to generation.concurrency",
        *_below("data", "batch_size gen_batch_size val_batch_size"),
    ),
    *_refused(_COLUMN, "data.response_key", unless=("responses",)),
    *_refused(_COLUMN, "data.data_source_key", unless=("data_source",)),
    *_refused(_COLUMN, "data.reward_model_key", unless=("reward_model",)),
    *_recorded(_COLUMN, "data.reward_fn_key", unless=("data_source",)),
    *_recorded(
        "every problem is used; data.limit takes the first ones",
        *_below("data", "train_max_samples val_max_samples"),
        unless=(-1,),
    ),
    *_recorded(
        "no problem is left out and no prompt is cut for its length",
        *_below("data", "filter_overlong_prompts filter_overlong_prompts_workers truncation"),
    ),
    *_recorded(f"set {_MODEL}.trust_remote_code", "data.trust_remote_code", unless=_OFF),
    *_recorded(
        "problems are texts",
        *_below(
            "data",
            "image_key video_key audio_key image_patch_size return_multi_modal_inputs "
            "mm_processor_kwargs",
        ),
    ),
    *_recorded(_ONE_TURN, *_below("data", "tool_config_path function_tool_path")),
    *_recorded(
        "problems are read and prompted by Plumbline",
        *_below(
            "data",
            "use_shm return_raw_input_ids return_raw_chat return_full_prompt custom_cls "
            "dataloader_num_workers",
        ),
    ),
    *_recorded(_TRAINING, *_below("data", "train_batch_size shuffle seed validation_shuffle")),
    *_recorded(_TRAINING, *_below("data", "sampler datagen")),
    # The model
    *_refused(
        "it changes the prompts; write the template into a file, and name it in "
        "generation.verl.chat_template",
        f"{_MODEL}.custom_chat_template",
        unless=("",),
    ),
    *_refused(
        "the engine reads configuration and tokenizer from the model's folder; put them there",
        *_below(_MODEL, "hf_config_path tokenizer_path"),
        unless=("",),
    ),
    *_refused(
        f"give the engine its options in {_ROLLOUT}.engine_kwargs, such as vllm.hf_overrides",
        f"{_MODEL}.override_config",
        unless=({},),
    ),
    *_refused(
        "no module is imported into the engine; install it as a plugin of the engine",
        f"{_MODEL}.external_lib",
        unless=("",),
    ),
    *_refused(
        "no adapter is loaded; merge it into the weights, and name their folder",
        *_below(_MODEL, "lora_adapter_path lora.adapter_path"),
        unless=("",),
    ),
    *_refused(
        f"give the engine its options in {_ROLLOUT}.engine_kwargs, such as vllm.speculative_config",
        f"{_MODEL}.mtp.enable_rollout",
        unless=_OFF,
    ),
    *_recorded(
        _TRAINING,
        *_below(
            _MODEL,
            "lora lora_alpha target_modules exclude_modules enable_gradient_checkpointing "
            "enable_activation_offload use_remove_padding use_liger use_fused_kernels "
            "fused_kernel_options tiled_mlp mtp",
        ),
    ),
    *_recorded("the engine loads the weights itself", f"{_MODEL}.use_shm", unless=_OFF),
    # The rollout
    *_recorded(
        "verl 0.9.1 has async only, and async is used; the completions are the same",
        f"{_ROLLOUT}.mode",
        only=("sync",),
    ),
    *_refused(
        "answers would go on after their end, which measures other texts; use false",
        f"{_ROLLOUT}.ignore_eos",
        unless=_OFF,
    ),
    *_recorded(
        "no log-probabilities are requested: they cost throughput, which is measured, and the "
        "completions are the same",
        *_below(_ROLLOUT, "calculate_log_probs logprobs_mode"),
        unless=(False, "processed_logprobs"),
    ),
    *_refused(
        "quantized weights are another model; name a quantized model's folder, or set "
        f"{_ROLLOUT}.engine_kwargs.vllm.quantization",
        *_below(_ROLLOUT, "quantization quantization_config_file qat.enable"),
        unless=("", False),
    ),
    *_refused(
        f"set {_ROLLOUT}.engine_kwargs.vllm.enable_expert_parallel",
        f"{_ROLLOUT}.expert_parallel_size",
        unless=(1,),
    ),
    *_refused(
        "the engines are vllm and sglang",
        f"{_ROLLOUT}.engine_kwargs.trtllm",
        unless=({},),
    ),
    *_recorded(
        "generation.deterministic=true chooses kernels whose results do not depend on the batch",
        f"{_ROLLOUT}.full_determinism",
        unless=_OFF,
    ),
    *_recorded(
        "a run samples by actor_rollout_ref.rollout.temperature, top_p, top_k and n",
        f"{_ROLLOUT}.val_kwargs",
    ),
    *_recorded(_ONE_TURN, *_below(_ROLLOUT, "multi_turn agent")),
    *_recorded(
        "replicas take the GPUs of trainer.nnodes and trainer.n_gpus_per_node",
        *_below(_ROLLOUT, "nnodes n_gpus_per_node"),
    ),
    *_recorded(
        "replicas are equal and prefill for themselves, behind Plumbline's router",
        *_below(_ROLLOUT, "disaggregation router_config_path"),
    ),
    *_recorded(
        f"the engine's own choice; {_ROLLOUT}.engine_kwargs has every option of the engine",
        *_below(_ROLLOUT, "cudagraph_capture_sizes scheduling_policy"),
        unless=("fcfs",),
    ),
    *_recorded(
        "the engine always has its tokenizer, since it answers with text",
        f"{_ROLLOUT}.skip_tokenizer_init",
        unless=_OFF,
    ),
    *_recorded(
        _TRAINING,
        *_below(
            _ROLLOUT,
            "free_cache_engine layered_summon log_prob_micro_batch_size "
            "log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz "
            "log_prob_max_token_len_per_gpu over_sample_rate multi_stage_wake_up "
            "checkpoint_engine enable_rollout_routing_replay moe_load_balance_metrics_interval "
            "enable_sleep_mode mtp qat",
        ),
    ),
    *_recorded(_OBSERVED, *_below(_ROLLOUT, "trace prometheus profiler")),
    # Ray
    _mapped(
        "ray_kwargs.ray_init.runtime_env.env_vars",
        "generation.verl.env_vars",
        "environment variables of the engines",
    ),
    _mapped("ray_kwargs.ray_init.address", "generation.verl.ray_address", "the cluster to join"),
    *_recorded(_RAY, "ray_kwargs.ray_init"),
    *_recorded(
        f"no timeline is written; {_OBSERVED}",
        *_below("ray_kwargs", "timeline_json_file ray_init.timeline_json_file"),
    ),
    # Judging
    *_refused(
        "a run judges by judge.method, and calls no other scorer; remove the key, or use "
        "plumbline_reward (docs/training.md)",
        *_below("custom_reward_function", "path"),
        *_below("reward.custom_reward_function", "path"),
        unless=("", "*plumbline_reward*"),
    ),
    *_recorded(
        "a run judges by judge.method",
        "custom_reward_function",
        "reward.custom_reward_function",
        unless=("compute_score",),
    ),
    *(
        _mapped(f"{section}.{name}", target)
        for section in ("sandbox_fusion", "reward.sandbox_fusion")
        for name, target in {
            "url": "sandbox.url",
            "max_concurrent": "sandbox.max_concurrency",
            "memory_limit_mb": "sandbox.memory_limit_mb",
        }.items()
    ),
    *_recorded("a run judges by judge.method", "reward", "reward_model", "sandbox_fusion"),
    # The guide's
    _mapped(
        "max_concurrent_requests",
        "generation.concurrency",
        "requests to the generator; sandbox.max_concurrency limits the calls to a sandbox",
    ),
    # What a run does not have
    *_recorded(
        "a run has run.name, and wandb.project, wandb.name and wandb.enabled",
        *_below("trainer", "project_name experiment_name logger log_val_generations"),
    ),
    *_recorded(
        _TRAINING,
        *_below(
            "trainer",
            "balance_batch total_epochs total_training_steps rollout_data_dir "
            "validation_data_dir save_freq esi_redundant_time resume_mode resume_from_path "
            "checkpoint_callback_class val_before_train val_only test_freq critic_warmup "
            "default_hdfs_dir default_local_dir del_local_ckpt_after_load max_actor_ckpt_to_keep "
            "max_critic_ckpt_to_keep ray_wait_register_center_timeout use_v1 v1 "
            "use_legacy_worker_impl",
        ),
    ),
    *_recorded(
        _TRAINING,
        *_below("actor_rollout_ref", "actor ref"),
        *_below("actor_rollout_ref", "hybrid_engine nccl_timeout"),
        "critic",
        "algorithm",
        "distillation",
        "transfer_queue",
        "skip",
        "model_engine",
        "async_training",
    ),
    *_recorded(_OBSERVED, "global_profiler"),
    *_recorded("a run has its own folder (output.dir)", "hydra"),
)
