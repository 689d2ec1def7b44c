"""Checkpoints of verl's training, whose weights are in shards until they are merged."""

import shlex
from pathlib import Path

from shared.errors import ConfigError

_SHARDS = "model_world_size_*_rank_*.pt"
_MEGATRON = "dist_ckpt"
_HUGGING_FACE = "huggingface"


def check_merged(folder: Path) -> None:
    """Reject a checkpoint whose weights no engine can load.

    A checkpoint is ``global_step_N`` with the folder ``actor``: shards of the weights, and the
    model's config and tokenizer in ``huggingface``. Any of the three may be given.
    Source of the layout: verl 0.9.1, verl/utils/checkpoint.

    Raises:
        ConfigError: It is one; the message has the command that merges it.
    """
    for actor in (folder, folder / "actor", folder.parent):
        backend = _backend(actor)
        if backend is None or (actor == folder.parent and folder.name != _HUGGING_FACE):
            continue
        whole = actor / _HUGGING_FACE
        if next(whole.glob("*.safetensors"), None) is not None:
            if folder == whole:
                return
            raise ConfigError(
                f"actor_rollout_ref.model.path: {folder} is a checkpoint of verl's training; its "
                f"whole model is in {whole}"
            )
        merged = shlex.quote(str(_step(actor) / "merged"))
        command = (
            f"python -m verl.model_merger merge --backend {backend} "
            f"--local_dir {shlex.quote(str(actor))} --target_dir {merged}"
        )
        raise ConfigError(
            f"actor_rollout_ref.model.path: {folder} is a checkpoint of verl's training whose "
            f"weights are not merged; run `{command}` and name {merged}"
        )


def _backend(actor: Path) -> str | None:
    """The name that verl's model merger has for the backend; None if this is no checkpoint."""
    try:
        if next(actor.glob(_SHARDS), None) is not None:
            return "fsdp"
        return "megatron" if (actor / _MEGATRON).is_dir() else None
    except PermissionError:
        return None  # a folder beside the given one


def _step(actor: Path) -> Path:
    return actor.parent if actor.name == "actor" else actor
