"""The tiny model, taught further answers (``taught_model MODEL EXAMPLES OUT EPOCHS TARGET``).

EXAMPLES are JSON lines with ``messages`` and ``completion``. Training ends after EPOCHS, or when
every token of every completion has the probability TARGET.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.tiny_model import Example, encode, train


def main(model: str, examples: str, out: str, epochs: str, target: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model)
    learner = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    lines = [json.loads(line) for line in Path(examples).read_text().splitlines()]
    taught = [Example(line["messages"], line["completion"]) for line in lines]
    encoded = encode(taught, tokenizer)
    train(learner, encoded, int(epochs), float(target))
    learner.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
