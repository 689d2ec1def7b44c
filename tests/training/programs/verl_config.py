"""verl's own configuration, and Ray, for one small machine without a GPU."""

import os
from pathlib import Path

import ray
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps 127.0.0.1 as the address of the node
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every engine takes the first core
    "OMP_NUM_THREADS": "1",
}


def configured(model: str, *overrides: str) -> DictConfig:
    """Resolve verl's ``ppo_trainer`` with Plumbline's reward."""
    settings = [
        f"actor_rollout_ref.model.path={model}",
        "reward.custom_reward_function.path=pkg://plumbline_reward",
        "reward.num_workers=2",
        *overrides,
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", settings)


def start_ray(folder: Path) -> None:
    os.environ.update(_ENVIRONMENT)
    ray.init(
        address="local",
        num_cpus=16,  # logical: an actor that waits takes one as well
        num_gpus=1,
        include_dashboard=False,
        object_store_memory=128 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder),
        runtime_env={"env_vars": _ENVIRONMENT},
    )
