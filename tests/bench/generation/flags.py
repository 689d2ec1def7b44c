"""`vllm serve` with the settings that verl gives the engine of its replicas.

verl 0.9.1 turns its rollout section into arguments of `vllm serve` (`launch_server` in
`verl/workers/rollout/vllm_rollout/vllm_async_server.py`) and runs the server itself. The mapping
here is that one. What is left of it: verl's extension of the worker, by which it puts weights in
and masks what is no token, and a seed for each replica.

Two defaults of `vllm serve` are others, which may matter where a step takes milliseconds:

- verl always takes the executor `mp`, which has the model's worker in a process of its own. For one
  GPU vLLM's default is `uni`, where scheduler and worker share one thread.
- verl's HTTP server writes no line for each request, that of `vllm serve` does.
"""

import json
from typing import Any

from services.generator.backends.verl.engine_config import overrides
from shared.config import Config

_ROLLOUT = "actor_rollout_ref.rollout."
# verl's name to vLLM's, where that is another.
_VALUES = {
    "dtype": "dtype",
    "load_format": "load-format",
    "max_model_len": "max-model-len",
    "max_num_seqs": "max-num-seqs",
    "max_num_batched_tokens": "max-num-batched-tokens",
    "gpu_memory_utilization": "gpu-memory-utilization",
    "tensor_model_parallel_size": "tensor-parallel-size",
    "seed": "seed",
}
_SWITCHES = {
    "enable_chunked_prefill": "enable-chunked-prefill",
    "enable_prefix_caching": "enable-prefix-caching",
    "enforce_eager": "enforce-eager",
    "enable_sleep_mode": "enable-sleep-mode",
}
# What verl passes whatever its configuration says, as long as nobody changes it there.
_ALWAYS = {
    "distributed-executor-backend": "mp",
    "logprobs-mode": "processed_logprobs",
    "scheduling-policy": "fcfs",
}
# verl's own HTTP server in place of vLLM's.
_QUIET = ["--uvicorn-log-level", "warning", "--disable-uvicorn-access-log"]


def matched_flags(config: Config) -> list[str]:
    """Options of `vllm serve` for the engine that a replica of this config has."""
    rollout = _rollout(config)
    engine = dict(rollout[f"engine_kwargs.{rollout['name']}"])
    compilation = {"cudagraph_mode": "FULL_AND_PIECEWISE"} | engine.pop("compilation_config", {})
    values = {flag: rollout[key] for key, flag in _VALUES.items()} | _ALWAYS
    values |= {
        "override-generation-config": _sampling(rollout),
        "compilation-config": compilation,
        "data-parallel-size": config.trainer.n_gpus_per_node
        // config.actor_rollout_ref.rollout.gpus_per_replica,
    }
    values |= {key.replace("_", "-"): value for key, value in engine.items()}
    switches = {flag: rollout[key] for key, flag in _SWITCHES.items()}
    flags = [part for flag, value in (values | switches).items() for part in _flag(flag, value)]
    if rollout["disable_log_stats"]:
        flags.append("--disable-log-stats")
    if config.actor_rollout_ref.model.trust_remote_code:
        flags.append("--trust-remote-code")
    return [*flags, *_QUIET]


def _rollout(config: Config) -> dict[str, Any]:
    """verl's rollout section by its keys, the engine's own options under ``engine_kwargs.vllm``."""
    return {
        key.removeprefix(_ROLLOUT): value
        for key, value in overrides(config).items()
        if key.startswith(_ROLLOUT)
    }


def _sampling(rollout: dict[str, Any]) -> dict[str, Any]:
    names = ("temperature", "top_k", "top_p")
    values = {name: rollout[name] for name in names}
    return {**values, "repetition_penalty": 1.0, "max_new_tokens": rollout["response_length"]}


def _flag(name: str, value: Any) -> list[str]:
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]
