"""Create a very small model, trained or random (``python -m tools.tiny_model OUT``)."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import ConfigError, PlumblineError, ServiceError
from tools.tiny_model.demo import FOLDER, DemoProblem, read_demo, texts
from tools.tiny_model.folder import MARKER_FILE, check_output, new_folder
from tools.tiny_model.model import SHAPES, TINY, new_model, random_model, train_tokenizer

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

_LIBRARIES = ("torch", "transformers", "tokenizers")
# Minimum probability of every learnt token, with a margin for bfloat16 and other kernels.
_TARGET_PROBABILITY = 0.6


def main() -> int:
    options = _parser().parse_args()
    try:
        _make(options)
    except PlumblineError as error:
        print(f"tiny_model: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tiny_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to create; an earlier model is replaced")
    parser.add_argument("--random", action="store_true", help="do not train; for benchmarks")
    parser.add_argument("--shape", default=TINY, help=f"{' or '.join(SHAPES)} (with --random)")
    parser.add_argument("--epochs", type=int, default=60, help="train no longer than this (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    parser.add_argument("--demo", type=Path, default=FOLDER, help="folder like demo/")
    parser.add_argument("--force", action="store_true", help="replace whatever OUT holds")
    return parser


def _make(options: argparse.Namespace) -> None:
    out = options.out.absolute()
    _check(options)
    check_output(out, options.force)
    problems = read_demo(options.demo)
    _check_libraries()
    import torch

    torch.set_num_threads(options.threads)
    started = time.monotonic()
    with new_folder(out) as folder:
        facts = (
            _random(options, problems, folder)
            if options.random
            else _trained(options, problems, folder)
        )
        mark = {"shape": options.shape, "seed": options.seed, **facts}
        (folder / MARKER_FILE).write_text(json.dumps(mark, indent=1) + "\n", encoding="utf-8")
    print(f"{out}: made in {time.monotonic() - started:.0f} s")


def _check(options: argparse.Namespace) -> None:
    if options.shape not in SHAPES:
        raise ConfigError(f"no shape {options.shape!r}; there are {', '.join(SHAPES)}")
    if options.shape != TINY and not options.random:
        raise ConfigError(f"shape {options.shape} is too large to be trained here; add --random")
    for name in ("epochs", "threads"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} is {getattr(options, name)}; give 1 or more")


def _check_libraries() -> None:
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise ServiceError(
            f"{', '.join(missing)} not installed in {sys.prefix}; call this with the Python of the "
            "engine's environment, the one that has vLLM and verl"
        )


def _random(
    options: argparse.Namespace, problems: Sequence[DemoProblem], folder: Path
) -> dict[str, Any]:
    shape = SHAPES[options.shape]
    tokenizer = train_tokenizer(texts(problems), shape.max_position_embeddings)
    model = random_model(shape, tokenizer, options.seed)
    _save(model, tokenizer, folder)
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
    sys.exit(main())
