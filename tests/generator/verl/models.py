"""Self-check of real models, many random and one trained: ``python -m … TRAINED``; JSON lines.

Runs in the environment that has torch and transformers.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import torch
import transformers

from services.generator.backends.verl.self_check import KNOWN_TEXT, ScoredTokens, compare


def score(model: Any, ids: Sequence[int]) -> ScoredTokens:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].float()
    logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])
    return ScoredTokens(ids, [None, *logprobs[:, 0].tolist()])


def report(name: str, model: Any, ids: Sequence[int]) -> None:
    model.eval()
    shuffled = [*ids[:1], *Random(0).sample(list(ids[1:]), len(ids) - 1)]
    facts = compare(score(model, ids), score(model, shuffled))
    print(json.dumps({"name": name, "facts": facts.model_dump()}), flush=True)


def random_configs(width: int, depth: int, vocabulary: int) -> Iterator[tuple[str, Any]]:
    """Models of several architectures and initializations, tied and untied."""
    for tied, spread in product((True, False), (0.02, 0.2)):
        sizes = {
            "hidden_size": width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": 4,
        }
        common = {
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
            "initializer_range": spread,
        }
        grouped = {**sizes, "num_key_value_heads": 2}
        configs = {
            "qwen2": transformers.Qwen2Config(**grouped, **common),
            "llama": transformers.LlamaConfig(**grouped, **common),
            "gemma2": transformers.Gemma2Config(**grouped, head_dim=width // 4, **common),
            "neox": transformers.GPTNeoXConfig(**sizes, **common),
            "gpt2": transformers.GPT2Config(n_embd=width, n_layer=depth, n_head=4, **common),
        }
        for name, config in configs.items():
            shape = f"{name} {width}x{depth} of {vocabulary}"
            yield f"{shape}, tied {tied}, spread {spread}", config


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = sys.argv[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(KNOWN_TEXT)["input_ids"]
    trained = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    report("trained", trained, ids)
    for width, depth, vocabulary in ((64, 2, 30_000), (256, 4, len(tokenizer))):
        # The tokens of a larger vocabulary lie anywhere in it.
        spread = Random(1).sample(range(vocabulary), len(tokenizer))
        for name, config in random_configs(width, depth, vocabulary):
            torch.manual_seed(5)
            model = transformers.AutoModelForCausalLM.from_config(config)
            report(name, model, [spread[i] for i in ids])


if __name__ == "__main__":
    main()
