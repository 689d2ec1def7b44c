"""Model folders for tests: real files, no weights."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from services.generator.backends.verl import backend
from shared.config import Config

MakeModel = Callable[..., Path]

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
}


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """As the service runs: child processes and pipes end differently there."""
    return {"uvloop": uvloop.new_event_loop}


# A file of no tensors.
SAFETENSORS = (2).to_bytes(8, "little") + b"{}"


def check(config: Config, missing: str = "") -> int:
    """Validate a configuration as if all packages but ``missing`` were installed."""
    return backend.check(config, is_installed=lambda package: package != missing)


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Write a model folder; a keyword of None leaves that file out."""

    def make(
        name: str = "model",
        *,
        config: dict[str, Any] | str | None = CONFIG,
        weights: str | None = "model.safetensors",
        tokenizer: str | None = "tokenizer.json",
        template: str | None = "{{ messages }}",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        if config is not None:
            text = config if isinstance(config, str) else json.dumps(config)
            (folder / "config.json").write_text(text)
        for file in (weights, tokenizer):
            if file is not None:
                (folder / file).write_bytes(SAFETENSORS if "safetensors" in file else b"{}")
        if template is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        return folder

    return make
