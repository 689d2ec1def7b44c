"""Create a very small Qwen2 model for tests of engines (``python -m tools.tiny_model OUT``).

End-to-end tests run a real engine with it, without a network. It is trained on the recorded answers
of the demo, so its greedy answers are a mixture: correct, wrong, broken, truncated. Its scores have
no meaning.

Torch, transformers and tokenizers are installed only in the engine's environment, not in
Plumbline's, so functions import them.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, JsonValue

from shared.config import Config
from shared.errors import DataError
from shared.prompts import chat_messages
from shared.schemas import Problem

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

DEMO = Path(__file__).parents[1] / "demo"
MARKER_FILE = "plumbline_model.json"
CONTEXT, VOCABULARY = 2048, 2048  # tokens
END_OF_TEXT, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""
# Minimum probability of every learnt token, with a margin for bfloat16 and other kernels.
_TARGET_PROBABILITY = 0.6
_LEARNING_RATE = 3e-3
_WARM_UP = 40  # steps
_BATCH = 8
_EPOCHS_PER_REPORT = 10


# The demo


class DemoProblem(BaseModel):
    """A line of ``problems/*.jsonl`` with its line of ``completions.jsonl``, the recorded answer.

    ``reference_solution`` is bare Python.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    dataset: str
    problem_id: str
    prompt: str
    ground_truth: dict[str, JsonValue]
    reference_solution: str
    completion: str
    finish_reason: str
    expected_status: str

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.problem_id}"

    @property
    def right(self) -> bool:
        return self.expected_status == "success"

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat messages that the runner sends for this problem with default templates."""
        fields = self.model_dump(include={"dataset", "problem_id", "prompt"})
        problem = Problem(**fields, ground_truth=json.dumps(self.ground_truth))
        return chat_messages(problem, Config())


def read_demo() -> list[DemoProblem]:
    """Read the demo's problems with their recorded answers."""
    recorded = _lines(DEMO / "completions.jsonl")
    answers = {(line["dataset"], line["problem_id"]): line for line in recorded}
    rows = (row for path in sorted(DEMO.glob("problems/*.jsonl")) for row in _lines(path))
    pairs = ((row, answers[row["dataset"], row["problem_id"]]) for row in rows)
    return [DemoProblem.model_validate(answer | row) for row, answer in pairs]


def _lines(path: Path) -> list[dict[str, JsonValue]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def texts(problems: Iterable[DemoProblem]) -> list[str]:
    """Collect training data for a tokenizer: prompts, solutions and answers."""
    return [text for p in problems for text in (p.prompt, p.reference_solution, p.completion)]


# Model and tokenizer


TINY = "tiny"
SHAPES = {
    TINY: {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "qwen2.5-1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}


def new_model(tokenizer: "Qwen2Tokenizer", shape: str = TINY) -> "Qwen2ForCausalLM":
    """Create a model with fresh weights; it stops at the end of a turn and decodes greedily."""
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    text_end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    tokens = {
        "bos_token_id": text_end,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": text_end,
    }
    config = Qwen2Config(**SHAPES[shape], tie_word_embeddings=True, **tokens)
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=False, **tokens)
    return model


def random_model(tokenizer: "Qwen2Tokenizer", shape: str) -> "Qwen2ForCausalLM":
    """Create an untrained bfloat16 model for benchmarks of generation.

    The embeddings of special and of unused tokens are zero. The output layer shares them, so greedy
    answers neither end nor have such tokens.
    """
    import torch

    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = new_model(tokenizer, shape)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        embeddings[tokenizer.all_special_ids] = 0
        embeddings[len(tokenizer) :] = 0
    return model


def train_tokenizer(texts: Iterable[str]) -> "Qwen2Tokenizer":
    """Train a byte-level BPE tokenizer of ``VOCABULARY`` tokens, including bytes and special ones.

    Its chat template ends turns with ``END_OF_TURN``.
    """
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    # Qwen2's class, because transformers loads the tokenizer of a Qwen2 model as one, with its
    # pre-tokenizer, whatever class was saved.
    tokenizer = Qwen2Tokenizer().train_new_from_iterator(
        texts,
        VOCABULARY,
        new_special_tokens=[TURN, END_OF_TURN],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.eos_token = END_OF_TURN
    tokenizer.model_max_length = CONTEXT
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


# Training


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation to learn, with its end of turn if ``complete``."""

    messages: list[dict[str, str]]
    completion: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of a conversation; the first ``prompt`` are masked in the loss, the rest learnt."""

    ids: list[int]
    prompt: int


def encode(examples: Iterable[Example], tokenizer: "Qwen2Tokenizer") -> list[Encoded]:
    """Tokenize conversations.

    Raises:
        DataError: One does not fit into the model's context.
    """
    encoded = [_encode(example, tokenizer) for example in examples]
    if (longest := max(len(example.ids) for example in encoded)) > tokenizer.model_max_length:
        raise DataError(f"a prompt with its answer has {longest} tokens, too many for the model")
    return encoded


def _encode(example: Example, tokenizer: "Qwen2Tokenizer") -> Encoded:
    prompt = tokenizer.encode(
        tokenizer.apply_chat_template(example.messages, add_generation_prompt=True, tokenize=False),
        add_special_tokens=False,
    )
    learnt = tokenizer.encode(example.completion, add_special_tokens=False)
    end = [tokenizer.eos_token_id] if example.complete else []
    return Encoded(ids=[*prompt, *learnt, *end], prompt=len(prompt))


def train(
    model: "Qwen2ForCausalLM", encoded: Sequence[Encoded], epochs: int, target: float
) -> None:
    """Train until every token has probability ``target``, at most ``epochs`` epochs.

    Deterministic for given arguments, torch version and machine. Prints its progress.
    """
    import torch

    random = Random(0)
    steps = epochs * len(_batches(encoded, Random(0)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    model.train()
    for epoch in range(1, epochs + 1):
        worst = 1.0
        for batch in _batches(encoded, random):
            worst = min(worst, _step(model, batch, optimizer))
            schedule.step()
        done = epoch == epochs or worst >= target
        if done or epoch % _EPOCHS_PER_REPORT == 0:
            print(f"epoch {epoch:4d}  worst token {worst:.3f}", flush=True)
        if done:
            break
    model.eval()


def _batches(encoded: Sequence[Encoded], random: Random) -> list[list[Encoded]]:
    """Batches of examples of similar length, in random order."""
    order = sorted(encoded, key=lambda example: len(example.ids) + random.uniform(0, 60))
    batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
    random.shuffle(batches)
    return batches


def _rate(step: int, steps: int) -> float:
    """Learning rate factor: linear warm-up, then linear decay to a fifth."""
    return min((step + 1) / _WARM_UP, max(0.2, 1 - step / steps))


def _step(model: "Qwen2ForCausalLM", batch: Sequence[Encoded], optimizer: "Optimizer") -> float:
    """Do one optimizer step; return the lowest probability of a token."""
    import torch
    from torch.nn.functional import cross_entropy

    # No mask is needed: causal attention never sees padding on the right.
    width = max(len(example.ids) for example in batch)
    ids = torch.tensor([example.ids + [0] * (width - len(example.ids)) for example in batch])
    rows, columns = (torch.tensor(places) for places in zip(*_places(batch), strict=True))
    hidden = model.model(input_ids=ids).last_hidden_state
    # Logits are computed for learnt tokens only; with a small model they cost the most.
    scores = model.lm_head(hidden[rows, columns - 1])
    losses = cross_entropy(scores, ids[rows, columns], reduction="none")
    optimizer.zero_grad()
    losses.mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float((-losses.detach().max()).exp())


def _places(batch: Sequence[Encoded]) -> Iterator[tuple[int, int]]:
    """Row and column of every learnt token."""
    for row, example in enumerate(batch):
        for column in range(example.prompt, len(example.ids)):
            yield row, column


# Command


def main() -> None:
    parser = argparse.ArgumentParser(prog="tiny_model", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to create; an earlier model is replaced")
    parser.add_argument("--epochs", type=int, default=80, help="train no longer than this (80)")
    parser.add_argument("--random", action="store_true", help="do not train; for benchmarks")
    parser.add_argument("--shape", choices=SHAPES, default=TINY, help="another needs --random")
    options = parser.parse_args()
    if options.shape != TINY and not options.random:
        parser.error(f"{options.shape} is too large to be trained here; add --random")
    out = options.out.absolute()
    if out.exists() and not (out / MARKER_FILE).is_file() and any(out.iterdir()):
        parser.error(f"{out} contains something other than a model of this program")
    if missing := [name for name in ("torch", "transformers", "tokenizers") if not find_spec(name)]:
        parser.error(
            f"{', '.join(missing)} not installed in {sys.prefix}; call this with the Python of the "
            "engine's environment, the one that has vLLM and verl"
        )
    folder = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _make(folder, options)
    shutil.rmtree(out, ignore_errors=True)
    folder.rename(out)


def _make(folder: Path, options: argparse.Namespace) -> None:
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    problems = read_demo()
    tokenizer = train_tokenizer(texts(problems))
    if options.random:
        model = random_model(tokenizer, options.shape)
    else:
        examples = [
            Example(p.messages, p.completion, p.finish_reason != "length") for p in problems
        ]
        model = new_model(tokenizer)
        train(model, encode(examples, tokenizer), options.epochs, _TARGET_PROBABILITY)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / MARKER_FILE).write_text(
        json.dumps({"random": options.random, "epochs": options.epochs}) + "\n", encoding="utf-8"
    )
    for file in folder.iterdir():  # safetensors creates files without access for others
        file.chmod(0o644)


if __name__ == "__main__":
    main()
