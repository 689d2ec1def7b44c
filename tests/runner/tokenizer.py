"""A byte-level tokenizer, trained in milliseconds."""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END, BEGIN = "</s>", "<s>"


def write_tokenizer(folder: Path, *, truncating: bool = False) -> Path:
    """Train a tokenizer that begins a text with ``<s>`` where it may, and save it in a folder."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["print(sum(map(int, input().split())))"] * 3, trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, bpe.token_to_id(BEGIN))]
    )
    if truncating:
        bpe.enable_truncation(4)
        bpe.enable_padding(length=64)
    folder.mkdir(parents=True, exist_ok=True)
    bpe.save(str(folder / "tokenizer.json"))
    return folder


@cache
def _read(folder: Path) -> Tokenizer:
    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe.no_truncation()
    bpe.no_padding()
    return bpe


def tokens(folder: Path, text: str) -> int:
    """The number of a text's own tokens, which make up the text again."""
    bpe = _read(folder)
    encoded = bpe.encode(text, add_special_tokens=False)
    assert bpe.decode(encoded.ids) == text
    return len(encoded.ids)
