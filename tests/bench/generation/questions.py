"""Requests with random prompts, the same for every server."""

import json
import random
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from tests.bench.generation.client import Question

_FIRST_TOKEN = 10  # below it, vocabularies have their special tokens
_LENGTHS = (0.75, 1.25)


def vocabulary(model: str) -> int:
    document: dict[str, Any] = json.loads((Path(model) / "config.json").read_text())
    return int(document["vocab_size"])


def prompts(count: int, tokens: int, vocabulary: int, seed: int | str) -> list[list[int]]:
    """Token ids, around ``tokens`` of them in each. Another seed has no prefix in common."""
    chance = random.Random(seed)
    low, high = (int(tokens * factor) for factor in _LENGTHS)
    # Its upper part may hold what the tokenizer does not have.
    ids = range(_FIRST_TOKEN, max(_FIRST_TOKEN + 1, vocabulary // 2))
    return [chance.choices(ids, k=chance.randint(low, high)) for _ in range(count)]


def questions(
    urls: Sequence[str], model: str, given: Sequence[list[int]], new_tokens: int
) -> list[Question]:
    """One greedy answer of exactly ``new_tokens`` for each prompt, from the servers in turn."""
    return [
        Question(
            f"{url}/v1/completions",
            {
                "model": model,
                "prompt": prompt,
                "max_tokens": new_tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
        )
        for url, prompt in zip(cycle(urls), given, strict=False)
    ]
