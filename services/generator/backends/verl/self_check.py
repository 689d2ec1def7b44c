"""Self-check of a started replica: random weights, found by the log-probabilities of known text.

A trained model finds the tokens of a program likelier in their order than shuffled. To a model with
random weights both are the same noise, whatever its architecture, size, vocabulary and
initialization. Compared are ranks, not sums: neither the scale of the logits matters nor a few
tokens that a model of few texts finds impossible. Both sequences have the same tokens, so a model
that knows only which tokens are frequent, or whose output layer favours some, gains nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp

from services.generator.backends.verl.messages import SelfCheckFacts
from shared.errors import ServiceError
from shared.text import one_line

KNOWN_TEXT = '''\
def binary_search(items, target):
    """Return the index of target in a sorted list, or -1 if it is not there."""
    low, high = 0, len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == target:
            return middle
        if items[middle] < target:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def count_words(text):
    """Count how often each word occurs in a text."""
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def is_prime(n):
    """Check whether n is a prime number."""
    if n < 2:
        return False
    for i in range(2, int(n ** 0.5) + 1):
        if n % i == 0:
            return False
    return True


if __name__ == "__main__":
    print(binary_search([1, 3, 5, 7, 9, 11], 7))
    print(count_words("the cat and the dog and the bird"))
    print([n for n in range(20) if is_prime(n)])
'''
_SECONDS = 120.0
# Between the 0.56 that random models reach and the 0.74 of a very small, overfitted one
# (docs/generation.md).
_TRAINED = 0.65
_FEWEST_TOKENS = 100


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """A sequence of tokens; the log-probability of the first is None."""

    ids: Sequence[int]
    logprobs: Sequence[float | None]

    @property
    def values(self) -> list[float]:
        """Log-probabilities in nats, without those of tokens that repeat their predecessor.

        Where the output layer shares the embeddings, even an untrained model finds these likely.
        """
        scored = zip(self.ids, self.ids[1:], self.logprobs[1:], strict=False)
        return [value for before, now, value in scored if value is not None and now != before]


async def check_self(url: str, engine: str, context: int) -> SelfCheckFacts:
    """Compare the known text with its shuffled tokens.

    ``url`` is the engine's address without ``/v1``, ``engine`` vllm or sglang, ``context`` the
    longest prompt and response in tokens.

    Raises:
        ServiceError: The engine does not answer, or without log-probabilities.
    """
    score = _sglang_scores if engine == "sglang" else _vllm_scores
    # A token has at least one of these characters; room for a first token and the response's.
    text = KNOWN_TEXT[: max(0, context - 2)]
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
            ordered = await score(session, url, text)
            ids = [*ordered.ids[:1], *Random(0).sample(ordered.ids[1:], len(ordered.ids) - 1)]
            shuffled = await score(session, url, ids)
    except (aiohttp.ClientError, TimeoutError, LookupError, TypeError, ValueError) as error:
        raise ServiceError(f"self-check: {one_line(error)}") from None
    return compare(ordered, shuffled)


def compare(ordered: ScoredTokens, shuffled: ScoredTokens) -> SelfCheckFacts:
    """Compare the log-probabilities of two orders of the same tokens.

    Raises:
        ServiceError: There are too few to tell.
    """
    values, others = ordered.values, sorted(shuffled.values)
    if min(len(values), len(others)) < _FEWEST_TOKENS:
        raise ServiceError(
            f"self-check: log-probabilities of {len(values)} and {len(others)} tokens, which are "
            f"too few; {_FEWEST_TOKENS} are needed"
        )
    wins = sum(bisect_left(others, value) + bisect_right(others, value) for value in values) / 2
    preference = wins / (len(values) * len(others))
    return SelfCheckFacts(
        mean_logprob=round(sum(values) / len(values), 3),
        order_preference=round(preference, 3),
        tokens=len(values),
        looks_random=preference < _TRAINED,
    )


def describe(facts: SelfCheckFacts) -> str:
    """Why a model looks random."""
    return (
        "it finds the tokens of a program hardly likelier in order than shuffled "
        f"({facts.order_preference:.2f} of comparisons, a trained model {_TRAINED} or more)"
    )


async def _vllm_scores(
    session: aiohttp.ClientSession, url: str, prompt: str | Sequence[int]
) -> ScoredTokens:
    models = await _answer(session.get(f"{url}/v1/models"))
    request = {
        "model": models["data"][0]["id"],
        "prompt": prompt,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 0,
        "return_token_ids": True,
    }
    answer = await _answer(session.post(f"{url}/v1/completions", json=request))
    choice = answer["choices"][0]
    ids = [int(token) for token in choice["prompt_token_ids"]]
    scored = zip(ids, choice["prompt_logprobs"], strict=True)
    logprobs = [None if of is None else float(of[str(token)]["logprob"]) for token, of in scored]
    return ScoredTokens(ids, logprobs)


async def _sglang_scores(
    session: aiohttp.ClientSession, url: str, prompt: str | Sequence[int]
) -> ScoredTokens:
    request = {
        "text" if isinstance(prompt, str) else "input_ids": prompt,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    answer = await _answer(session.post(f"{url}/generate", json=request))
    tokens = answer["meta_info"]["input_token_logprobs"]
    logprobs = [None if value is None else float(value) for value, *_ in tokens]
    return ScoredTokens([int(token) for _, token, *_ in tokens], logprobs)


async def _answer(
    request: AbstractAsyncContextManager[aiohttp.ClientResponse],
) -> Mapping[str, Any]:
    async with request as response:
        document: Mapping[str, Any] = await response.json()
        return document
