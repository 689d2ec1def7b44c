"""Token counts of completions that came without one, by a tokenizer (``data.tokenizer``).

The count is what an engine reports as ``completion_tokens``: the tokens that it generated. The text
alone is tokenized, so there is no begin token; ``finish_reason: "stop"`` adds the end token, which
engines generate and count but leave out of the text. Where a stop string ended the text there is
none, and where the reason is unknown none is assumed. Reasoning that a server removed is not
counted. Source: vLLM's ``vllm/v1/engine/detokenizer.py`` (the stop token leaves the text and stays
in ``token_ids``, whose number is the usage), and https://github.com/vllm-project/vllm/issues/28185.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import fsspec

from services.runner.run import Source
from shared.config import Config
from shared.errors import ConfigError, DataError, reading
from shared.redaction import redact_address
from shared.run_record import TokenizerRecord
from shared.schemas import Generation, SampleId
from shared.statuses import TokenSource
from shared.text import one_line, shorten_end

_FILE = "tokenizer.json"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
_HUB_SECONDS = 10
_LONGEST = 200


class TokenCounter:
    """Counts the tokens of completions that have no count, or only an estimate.

    ``stop`` strings end a completion and remain in it; ``record`` is for ``run.json``.

    Raises:
        ConfigError: There is no tokenizer of this name, or it cannot be used.
    """

    def __init__(self, name: str, stop: Sequence[str]) -> None:
        from tokenizers import Tokenizer  # here, because few runs need it

        definition = _read(name)
        digest = hashlib.sha256(definition).hexdigest()
        self.record = TokenizerRecord(name=redact_address(name), sha256=digest)
        self._stop = tuple(stop)
        try:
            self._tokenizer: Any = Tokenizer.from_str(definition.decode())
        except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
            raise _refusal(name, f"{_FILE} cannot be used: {_line(error)}") from None
        # Files keep the settings of whoever saved them.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, generations: Sequence[Generation]) -> list[Generation]:
        """Return the generations in their order, each with a count; failed ones have none."""
        texts = [g.completion for g in generations if _is_uncounted(g)]
        encodings = iter(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        return [self._with(g, next(encodings)) if _is_uncounted(g) else g for g in generations]

    def _with(self, generation: Generation, encoding: Any) -> Generation:  # noqa: ANN401
        stopped = bool(self._stop) and generation.completion.endswith(self._stop)
        tokens = len(encoding.ids) + (generation.finish_reason == "stop" and not stopped)
        count = {"output_tokens": tokens, "output_tokens_from": TokenSource.TOKENIZER}
        return generation.model_copy(update=count)

    def counting(self, source: Source) -> Source:
        """Wrap a source so that what it yields is counted."""

        async def counted(samples: list[SampleId]) -> AsyncGenerator[Sequence[Generation]]:
            async with aclosing(source(samples)) as batches:
                async for batch in batches:
                    yield await asyncio.to_thread(self.count, batch)

        return counted


def open_counter(config: Config) -> TokenCounter | None:
    """Load the tokenizer that ``data.tokenizer`` names; None if it names none."""
    name = config.data.tokenizer
    return None if name is None else TokenCounter(name, config.generation.stop)


def _is_uncounted(generation: Generation) -> bool:
    estimated = generation.output_tokens_from is TokenSource.ESTIMATE
    return generation.error is None and (estimated or generation.output_tokens is None)


def _read(name: str) -> bytes:
    """The content of ``tokenizer.json`` of a folder, of a URL or from the hub."""
    if "://" in name or Path(name).exists():
        path = name if Path(name).name == _FILE else f"{name.rstrip('/')}/{_FILE}"
        try:
            with reading(path), fsspec.open(path, "rb") as file:
                return bytes(file.read())
        except DataError as error:
            raise _refusal(name, str(error)) from None
    if not _HUB_NAME.fullmatch(name):
        raise _refusal(name, "no such folder")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    logging.set_verbosity(40)  # ERROR: its retries are not a user's business
    try:
        return Path(hf_hub_download(name, _FILE, etag_timeout=_HUB_SECONDS)).read_bytes()
    # The library raises its own exceptions, those of HTTP clients and builtin ones; the block does
    # nothing but use the hub.
    except Exception as error:  # noqa: BLE001
        cause = f"the hub does not give it ({_line(error)}); a gated model needs HF_TOKEN"
        raise _refusal(name, f"no such folder, and {cause}") from None


def _refusal(name: str, cause: str) -> ConfigError:
    return ConfigError(
        f"data.tokenizer {redact_address(name)!r}: {cause}; it needs a folder with {_FILE} "
        "(AutoTokenizer.save_pretrained writes it) or a name on the Hugging Face hub"
    )


def _line(error: BaseException) -> str:
    return shorten_end(one_line(error), _LONGEST)
