"""Self-check of a started replica: the log-probability of its tokens on fixed prompts.

A trained model assigns a high probability to the tokens that it picks greedily. One with random
weights is close to a uniform distribution over the vocabulary, ``-log(vocabulary)`` on average.
"""

import asyncio
import math
from dataclasses import dataclass

import aiohttp

from services.generator.backends.verl.messages import SelfCheckFacts
from shared.errors import ServiceError

PROMPTS = (
    "The capital of France is",
    "def add(a, b):\n    return",
    "1, 2, 3, 4, 5, 6,",
    "for i in range(10):\n    print(",
)
_TOKENS = 16
_SECONDS = 120.0
# As a share of the uniform distribution's: near 1 for untrained models, near 0 for trained ones.
_SUSPICIOUS = 0.5


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """``mean_logprob`` is in nats per token; ``chance`` is its value for random weights."""

    mean_logprob: float
    tokens: int
    chance: float | None

    @property
    def facts(self) -> SelfCheckFacts:
        """Rounded values for logs and run.json."""
        return SelfCheckFacts(
            mean_logprob=round(self.mean_logprob, 3),
            tokens=self.tokens,
            chance=None if self.chance is None else round(self.chance, 3),
            looks_random=self.looks_random,
        )

    @property
    def looks_random(self) -> bool:
        return self.chance is not None and self.mean_logprob < _SUSPICIOUS * self.chance


async def check_self(url: str, vocabulary: int | None) -> SelfCheck:
    """Complete the prompts greedily, and average the log-probabilities.

    Args:
        url: The engine's address without ``/v1``.
        vocabulary: Size of the model's vocabulary, if known.

    Raises:
        ServiceError: The engine does not answer, or without log-probabilities.
    """
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
            async with session.get(f"{url}/v1/models") as response:
                model = (await response.json())["data"][0]["id"]
            answers = await asyncio.gather(
                *(_logprobs(session, url, model, prompt) for prompt in PROMPTS)
            )
    except (
        aiohttp.ClientError,
        TimeoutError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ServiceError(f"self-check: {reason}") from None
    values = [value for answer in answers for value in answer]
    if not values:
        raise ServiceError("self-check: the engine generated nothing")
    chance = -math.log(vocabulary) if vocabulary else None
    return SelfCheck(sum(values) / len(values), len(values), chance)


async def _logprobs(
    session: aiohttp.ClientSession, url: str, model: str, prompt: str
) -> list[float]:
    request = {
        "model": model,
        "prompt": prompt,
        "max_tokens": _TOKENS,
        "temperature": 0,
        "logprobs": 1,
    }
    async with session.post(f"{url}/v1/completions", json=request) as response:
        choice = (await response.json())["choices"][0]
    return [value for value in choice["logprobs"]["token_logprobs"] if value is not None]
