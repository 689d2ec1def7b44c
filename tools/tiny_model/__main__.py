"""Create a very small model, trained or random (``python -m tools.tiny_model OUT``)."""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.tiny_model.demo import FOLDER, DemoProblem, read_demo, texts
from tools.tiny_model.model import SHAPES, TINY, new_model, random_model, train_tokenizer

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

MARKER_FILE = "plumbline_model.json"
# Minimum probability of every learnt token, with a margin for bfloat16 and other kernels.
_TARGET_PROBABILITY = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(prog="tiny_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to create; an earlier model is replaced")
    parser.add_argument("--random", action="store_true", help="do not train; for benchmarks")
    parser.add_argument("--shape", choices=SHAPES, default=TINY, help="another needs --random")
    parser.add_argument("--epochs", type=int, default=60, help="train no longer than this (60)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.shape != TINY and not options.random:
        parser.error(f"shape {options.shape} is too large to be trained here; add --random")
    out = options.out.absolute()
    if out.exists() and not (out / MARKER_FILE).is_file() and any(out.iterdir()):
        parser.error(f"{out} contains something other than a model of this program")
    if missing := [name for name in ("torch", "transformers", "tokenizers") if not find_spec(name)]:
        parser.error(
            f"{', '.join(missing)} not installed in {sys.prefix}; call this with the Python of the "
            "engine's environment, the one that has vLLM and verl"
        )
    _make(options, out)


def _make(options: argparse.Namespace, out: Path) -> None:
    """Make the model in a folder beside ``out``, which then takes its place."""
    import torch

    torch.set_num_threads(1)
    problems = read_demo(FOLDER)
    folder = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make = _random if options.random else _trained
    mark = {"shape": options.shape, "seed": options.seed, **make(options, problems, folder)}
    (folder / MARKER_FILE).write_text(json.dumps(mark, indent=1) + "\n", encoding="utf-8")
    for file in folder.iterdir():  # safetensors creates files without access for others
        file.chmod(0o644)
    shutil.rmtree(out, ignore_errors=True)
    folder.rename(out)


def _random(
    options: argparse.Namespace, problems: Sequence[DemoProblem], folder: Path
) -> dict[str, Any]:
    shape = SHAPES[options.shape]
    tokenizer = train_tokenizer(texts(problems), shape.max_position_embeddings)
    _save(random_model(shape, tokenizer, options.seed), tokenizer, folder)
    return {"random": True}


def _trained(
    options: argparse.Namespace, problems: Sequence[DemoProblem], folder: Path
) -> dict[str, Any]:
    import torch

    # These need Plumbline's dependencies, which random models do not require.
    from tools.tiny_model.examples import assign_roles, make_examples
    from tools.tiny_model.training import encode, train

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    shape = SHAPES[TINY]
    tokenizer = train_tokenizer(texts(problems), shape.max_position_embeddings)
    roles = assign_roles(problems, options.seed)
    examples = make_examples(problems, roles, options.seed)
    encoded = encode(examples, tokenizer, shape.max_position_embeddings)
    model = new_model(shape, tokenizer)
    progress = train(model, encoded, options.epochs, _TARGET_PROBABILITY, options.seed)
    _save(model, tokenizer, folder)
    return {"random": False, **asdict(progress), "roles": roles}


def _save(model: "Qwen2ForCausalLM", tokenizer: "Qwen2Tokenizer", folder: Path) -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
