"""Validation of a model folder before the start: config, weights, tokenizer, context length."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.config import Config
from shared.errors import ConfigError

_KEY = "actor_rollout_ref.model.path"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "*.tiktoken", "tekken.json")
_READ = (*_WEIGHTS, *_TOKENIZERS, "*.json", "*.jinja")
# Names in a checkpoint of verl's training.
_SHARDS = "model_world_size_*_rank_*.pt"
_MEGATRON = "dist_ckpt"
_HUGGING_FACE = "huggingface"
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk; ``context`` is tokens of prompt and response, None if unknown."""

    path: Path
    architecture: str
    context: int | None
    has_chat_template: bool


def local_folder(path: str) -> Path | None:
    """The folder that ``path`` names; None for a name on the Hugging Face hub.

    Raises:
        ConfigError: It looks like a folder but does not exist, or it cannot be read.
    """
    if not path:
        raise ConfigError(f"{_KEY} is not set; name a model folder or a model on the hub")
    folder = Path(path).expanduser()
    try:
        if folder.is_dir():
            return folder
    except PermissionError as error:
        raise _unreadable(error, folder) from None
    if path.startswith(("/", "./", "../", "~")) or path.count("/") > 1 or folder.exists():
        raise ConfigError(f"{_KEY}: there is no folder {path!r}")
    return None


def read_model_folder(folder: Path) -> ModelFolder:
    """Read and validate a model folder.

    Raises:
        ConfigError: It has no usable ``config.json``, lacks weights or a tokenizer, is not
            readable, or is a checkpoint of verl's training that is not merged.
    """
    _check_readable(folder)
    _check_merged(folder)
    config = _json(folder, "config.json")
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        raise ConfigError(
            f"{_KEY}: {folder / 'config.json'} must name one architecture, not {architectures!r}"
        )
    _check_weights(folder)
    if not any(_any(folder, pattern) for pattern in _TOKENIZERS):
        raise ConfigError(f"{_KEY}: {folder} has no tokenizer (such as tokenizer.json)")
    text = config.get("text_config")
    config = {**config, **(text if isinstance(text, dict) else {})}
    return ModelFolder(
        path=folder,
        architecture=str(architectures[0]),
        context=_context(config),
        has_chat_template=_has_chat_template(folder),
    )


def check_fits(model: ModelFolder, config: Config) -> None:
    """Reject a configuration that would give wrong results with this model.

    Raises:
        ConfigError: Prompt and response are longer than its context, or there is no chat template.
    """
    rollout = config.actor_rollout_ref.rollout
    asked = rollout.prompt_length + rollout.response_length
    if rollout.max_model_len is not None and rollout.max_model_len < asked:
        raise ConfigError(
            f"rollout.prompt_length {rollout.prompt_length} and rollout.response_length "
            f"{rollout.response_length} are more than rollout.max_model_len "
            f"{rollout.max_model_len}"
        )
    asked = rollout.max_model_len or asked
    if model.context is not None and asked > model.context:
        lengths = (
            f"rollout.max_model_len {rollout.max_model_len} is"
            if rollout.max_model_len
            else f"rollout.prompt_length {rollout.prompt_length} and rollout.response_length "
            f"{rollout.response_length} are together"
        )
        raise ConfigError(
            f"{lengths} beyond the context of {model.path}, which is {model.context} tokens"
        )
    template = config.generation.verl.chat_template
    if template and not Path(template).is_file():
        raise ConfigError(f"generation.verl.chat_template: there is no file {template!r}")
    if not template and not model.has_chat_template:
        raise ConfigError(
            f"the tokenizer of {model.path} has no chat template (a base model?); name a Jinja "
            "file in generation.verl.chat_template"
        )


def _check_readable(folder: Path) -> None:
    """Open the files that an engine will read, which would fail minutes later."""
    file = folder
    try:
        for file in sorted(folder.iterdir()):
            if any(file.match(pattern) for pattern in _READ) and file.is_file():
                file.open("rb").close()
    except OSError as error:
        raise _unreadable(error, file) from None


def _unreadable(error: OSError, file: Path) -> ConfigError:
    advice = "; make the folder readable (chmod -R a+rX)"
    denied = isinstance(error, PermissionError)
    cause = f"{error.strerror or error}{advice if denied else ''}"
    return ConfigError(f"{_KEY}: {file} cannot be read: {cause}")


def _check_weights(folder: Path) -> None:
    for index in folder.glob("*.index.json"):
        listed = _json(folder, index.name).get("weight_map")
        shards = set(listed.values()) if isinstance(listed, dict) else set()
        if missing := sorted(name for name in shards if not (folder / name).is_file()):
            raise ConfigError(
                f"{_KEY}: {folder} lacks weights: {missing[0]}"
                + (f" and {len(missing) - 1} more files" if len(missing) > 1 else "")
            )
    for file in sorted(folder.glob("*.safetensors")):
        _check_safetensors(file)
    if not any(_any(folder, pattern) for pattern in _WEIGHTS):
        raise ConfigError(f"{_KEY}: {folder} has no weights ({', '.join(_WEIGHTS)})")


def _check_safetensors(file: Path) -> None:
    """Reject a truncated download, minutes before an engine would.

    Source of the format: https://github.com/huggingface/safetensors (8 bytes with the length of the
    header, a JSON header with the offsets of each tensor, the tensors).
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            tensors = json.loads(content.read(length) if length < size else b"")
        ends = [t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except OSError as error:
        raise _unreadable(error, file) from None
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        raise ConfigError(f"{_KEY}: {file} is damaged: no safetensors header") from None
    if size != expected:
        raise ConfigError(f"{_KEY}: {file} is damaged: {size} bytes, it should have {expected}")


def _context(config: Mapping[str, object]) -> int | None:
    values = (config.get(key) for key in _CONTEXT)
    lengths = [length for length in values if isinstance(length, int)]
    if not lengths:
        return None
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    scaling = scaling if isinstance(scaling, dict) else {}
    factor = scaling.get("factor")
    if not isinstance(factor, int | float) or factor <= 1:
        return min(lengths)
    # Some configs name the length before scaling, others after; the engine makes the final check.
    original = scaling.get("original_max_position_embeddings")
    return max(min(lengths), int((original or min(lengths)) * factor))


def _has_chat_template(folder: Path) -> bool:
    if any(_any(folder, name) for name in ("chat_template.jinja", "chat_template.json")):
        return True
    if not (folder / "tokenizer_config.json").is_file():
        return False
    return bool(_json(folder, "tokenizer_config.json").get("chat_template"))


def _any(folder: Path, pattern: str) -> bool:
    return next(folder.glob(pattern), None) is not None


def _json(folder: Path, name: str) -> dict[str, object]:
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{_KEY}: {folder} has no {name}") from None
    except OSError as error:
        raise _unreadable(error, folder / name) from None
    except ValueError as error:
        raise ConfigError(f"{_KEY}: {folder / name} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{_KEY}: {folder / name} is not a JSON object")
    return document


# Checkpoints of verl's training, whose weights are in shards until they are merged


def _check_merged(folder: Path) -> None:
    """Raise ConfigError, with the command that merges it, for a checkpoint in shards.

    A checkpoint is ``global_step_N`` with the folder ``actor``: shards of the weights, and the
    model's config and tokenizer in ``huggingface``. Any of the three may be named.
    Source of the layout: verl 0.9.1, verl/utils/checkpoint.
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
                f"{_KEY}: {folder} is a checkpoint of verl's training; its "
                f"whole model is in {whole}"
            )
        step = actor.parent if actor.name == "actor" else actor
        merged = shlex.quote(str(step / "merged"))
        command = (
            f"python -m verl.model_merger merge --backend {backend} "
            f"--local_dir {shlex.quote(str(actor))} --target_dir {merged}"
        )
        raise ConfigError(
            f"{_KEY}: {folder} is a checkpoint of verl's training whose "
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
