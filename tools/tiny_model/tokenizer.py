"""A byte-level BPE tokenizer with a chat template, learnt from a few texts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

END_OF_TEXT = "<|endoftext|>"
TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
VOCABULARY = 2048

_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


def train_tokenizer(texts: Iterable[str], max_length: int) -> "Qwen2Tokenizer":
    """Learn a vocabulary of ``VOCABULARY`` tokens, bytes and special ones among them.

    Args:
        texts: What to learn from.
        max_length: Tokens that the model can hold.

    Returns:
        One that ends turns with ``END_OF_TURN``.
    """
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    # Qwen2's class, because transformers reads the tokenizer of a Qwen2 model as one, with its way
    # of splitting a text into words, whatever class was saved.
    tokenizer = Qwen2Tokenizer().train_new_from_iterator(
        texts,
        VOCABULARY,
        new_special_tokens=[TURN, END_OF_TURN],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.eos_token = END_OF_TURN
    tokenizer.model_max_length = max_length
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
