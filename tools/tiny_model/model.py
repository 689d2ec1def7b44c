"""Qwen2 model and tokenizer: shapes, fresh and random weights, byte-level BPE, chat template."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer


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


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model, named as in Qwen2's config."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    tie_word_embeddings: bool = True


TINY = "tiny"
SHAPES = {
    TINY: Shape(
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=2048,
        rope_theta=10_000.0,
    ),
    "qwen2.5-1.5b": Shape(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=151_936,
        max_position_embeddings=32_768,
        rope_theta=1_000_000.0,
    ),
}


def new_model(shape: Shape, tokenizer: "Qwen2Tokenizer") -> "Qwen2ForCausalLM":
    """Create a model with fresh weights, of torch's default dtype and device.

    It stops at the tokenizer's end of turn and decodes greedily by default.
    """
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    sizes = asdict(shape)
    rope = {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}
    text_end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    tokens = {
        "bos_token_id": text_end,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": text_end,
    }
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, rope_parameters=rope, **tokens))
    model.generation_config = GenerationConfig(do_sample=False, **tokens)
    return model


def random_model(shape: Shape, tokenizer: "Qwen2Tokenizer", seed: int) -> "Qwen2ForCausalLM":
    """Create an untrained bfloat16 model that never ends its answer in greedy decoding.

    The embeddings of special and of unused tokens are zero. The output layer shares them, so these
    tokens never have the highest score.
    """
    import torch

    torch.manual_seed(seed)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = new_model(shape, tokenizer)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        embeddings[tokenizer.all_special_ids] = 0
        embeddings[len(tokenizer) :] = 0
    return model


def train_tokenizer(texts: Iterable[str], max_length: int) -> "Qwen2Tokenizer":
    """Train a byte-level BPE tokenizer of ``VOCABULARY`` tokens, including bytes and special ones.

    Args:
        texts: Training data.
        max_length: The model's context length in tokens.

    Returns:
        A tokenizer with a chat template that ends turns with ``END_OF_TURN``.
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
    tokenizer.model_max_length = max_length
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
