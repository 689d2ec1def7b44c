"""Training loop that overfits a model to a small number of answers."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from shared.errors import DataError
from tools.tiny_model.examples import Example

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

_LEARNING_RATE = 3e-3
_WARM_UP = 40  # steps
_BATCH = 8
_EPOCHS_PER_REPORT = 10


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of a conversation; the first ``prompt`` are masked in the loss, the rest learnt."""

    ids: list[int]
    prompt: int


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Mean loss and lowest token probability of the last epoch."""

    epochs: int
    loss: float
    worst: float


def encode(
    examples: Sequence[Example], tokenizer: "Qwen2Tokenizer", max_length: int
) -> list[Encoded]:
    """Tokenize conversations.

    Raises:
        DataError: One has more than ``max_length`` tokens.
    """
    encoded = [_encode(example, tokenizer) for example in examples]
    longest = max(len(each.ids) for each in encoded)
    if longest > max_length:
        raise DataError(f"a demo answer has {longest} tokens with its prompt, over {max_length}")
    return encoded


def train(
    model: "Qwen2ForCausalLM", encoded: Sequence[Encoded], epochs: int, target: float, seed: int
) -> TrainingProgress:
    """Train until every token has probability ``target``, at most ``epochs`` epochs.

    Deterministic for given arguments, torch version and machine. Prints its progress.
    """
    import torch

    random = Random(seed)
    steps = epochs * len(_batches(encoded, Random(seed)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    started = time.monotonic()
    progress = TrainingProgress(0, float("inf"), 0.0)
    model.train()
    while progress.epochs < epochs and progress.worst < target:
        results = []
        for batch in _batches(encoded, random):
            results.append(_step(model, batch, optimizer))
            schedule.step()
        progress = TrainingProgress(
            epochs=progress.epochs + 1,
            loss=sum(loss for loss, _ in results) / len(results),
            worst=min(worst for _, worst in results),
        )
        if progress.epochs % _EPOCHS_PER_REPORT == 0:
            _report(progress, started)
    _report(progress, started)
    model.eval()
    return progress


def _encode(example: Example, tokenizer: "Qwen2Tokenizer") -> Encoded:
    prompt = tokenizer.apply_chat_template(
        example.messages, add_generation_prompt=True, tokenize=False
    )
    given = tokenizer.encode(prompt, add_special_tokens=False)
    learnt = tokenizer.encode(example.completion, add_special_tokens=False)
    end = [tokenizer.eos_token_id] if example.complete else []
    return Encoded(ids=[*given, *learnt, *end], prompt=len(given))


def _batches(encoded: Sequence[Encoded], random: Random) -> list[list[Encoded]]:
    """Batches of examples of similar length, in random order."""
    order = sorted(encoded, key=lambda each: len(each.ids) + random.uniform(0, 60))
    batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
    random.shuffle(batches)
    return batches


def _rate(step: int, steps: int) -> float:
    """Learning rate factor: linear warm-up, then linear decay to a fifth."""
    return min((step + 1) / _WARM_UP, max(0.2, 1 - step / steps))


def _step(
    model: "Qwen2ForCausalLM", batch: Sequence[Encoded], optimizer: "Optimizer"
) -> tuple[float, float]:
    """Do one optimizer step; return the mean loss and the lowest token probability."""
    import torch
    from torch.nn.functional import cross_entropy

    # No mask is needed: causal attention never sees padding on the right.
    width = max(len(each.ids) for each in batch)
    ids = torch.tensor([each.ids + [0] * (width - len(each.ids)) for each in batch])
    rows, columns = zip(*_places(batch), strict=True)
    hidden = model.model(input_ids=ids).last_hidden_state
    columns = torch.tensor(columns)
    rows = torch.tensor(rows)
    # Logits are computed for learnt tokens only; with a small model they cost the most.
    scores = model.lm_head(hidden[rows, columns - 1])
    losses = cross_entropy(scores, ids[rows, columns], reduction="none")
    optimizer.zero_grad()
    losses.mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return losses.mean().item(), (-losses.max()).exp().item()


def _places(batch: Sequence[Encoded]) -> Iterator[tuple[int, int]]:
    """Row and column of every learnt token."""
    for row, each in enumerate(batch):
        for column in range(each.prompt, len(each.ids)):
            yield row, column


def _report(progress: TrainingProgress, started: float) -> None:
    seconds = time.monotonic() - started
    print(
        f"epoch {progress.epochs:4d}  loss {progress.loss:.4f}  "
        f"worst token {progress.worst:.3f}  {seconds:5.1f} s",
        flush=True,
    )
