"""Tokens of completions that came without a count, counted with `data.tokenizer`."""

import hashlib
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from services.runner.sources import RecordedSource
from services.runner.tokens import TokenCounter, open_counter
from shared.completions import RecordedCompletion
from shared.config import load_config
from shared.errors import ConfigError
from shared.schemas import SampleId, is_encodable
from shared.statuses import TokenSource
from tests.shared.ledgers import generation

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


def tokens(folder: Path, text: str) -> int:
    """The number of a text's own tokens, which make up the text again."""
    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe.no_truncation()
    bpe.no_padding()
    encoded = bpe.encode(text, add_special_tokens=False)
    assert bpe.decode(encoded.ids) == text
    return len(encoded.ids)


TEXT = "```python\nprint(sum(map(int, input().split())))\n```\nä\u2028"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def counter(name: object, *overrides: str) -> TokenCounter:
    found = open_counter(load_config(None, [f"data.tokenizer={name}", *overrides]))
    assert found is not None
    return found


def refusal(name: object) -> str:
    with pytest.raises(ConfigError) as caught:
        counter(name)
    message = str(caught.value)
    assert "\n" not in message
    assert "tokenizer.json" in message
    return message


def test_only_what_nobody_counted_is_counted(folder: Path) -> None:
    counted = generation("p1", TEXT, output_tokens=7)
    estimated = generation("p2", TEXT, output_tokens=7, output_tokens_from="estimate")
    unknown, failed = generation("p3", TEXT), generation("p4", "", error="timeout")
    found = counter(folder).count([counted, estimated, unknown, failed])
    assert (found[0], found[3]) == (counted, failed)
    expected = {"output_tokens": tokens(folder, TEXT), "output_tokens_from": TokenSource.TOKENIZER}
    assert found[1:3] == [one.model_copy(update=expected) for one in (estimated, unknown)]


def test_the_end_token_counts_as_engines_count_it(folder: Path) -> None:
    own = tokens(folder, TEXT)
    reasons = {"stop": own + 1, "length": own, None: own}
    for reason, expected in reasons.items():
        (found,) = counter(folder).count([generation("p1", TEXT, finish_reason=reason)])
        assert found.output_tokens == expected
    stopped = generation("p1", TEXT, finish_reason="stop")
    (found,) = counter(folder, "generation.stop=['\u2028']").count([stopped])
    assert found.output_tokens == own
    (found,) = counter(folder).count([generation("p1", "", finish_reason="stop")])
    assert found.output_tokens == 1


def test_there_is_no_begin_token_and_nothing_is_cut(tmp_path: Path) -> None:
    """Although the tokenizer's file says to cut and to pad texts."""
    cutting = write_tokenizer(tmp_path, truncating=True)
    own = counter(cutting)

    @settings(max_examples=30)
    @given(text=st.text().filter(is_encodable))
    def check(text: str) -> None:
        (found,) = own.count([generation("p1", text)])
        assert found.output_tokens == tokens(cutting, text)

    check()


async def test_what_a_source_yields_is_counted(folder: Path) -> None:
    recorded = RecordedSource()
    samples = [SampleId("d", f"p{number}") for number in range(70)]
    for number, sample in enumerate(samples):
        fields = {"problem_id": sample.problem_id, "completion": "a" * number}
        fields |= {"output_tokens": 99} if number == 3 else {}
        recorded.add(sample, RecordedCompletion.model_validate(fields))
    source = counter(folder).counting(recorded)
    counted = [generation async for batch in source(samples) for generation in batch]
    assert [generation.sample for generation in counted] == samples
    expected = [tokens(folder, generation.completion) for generation in counted]
    expected[3] = 99
    assert [generation.output_tokens for generation in counted] == expected


def test_a_file_and_a_url_name_a_tokenizer_too(folder: Path) -> None:
    content = (folder / "tokenizer.json").read_bytes()
    with fsspec.open("memory://tokenizers/mine/tokenizer.json", "wb") as file:
        file.write(content)
    names = [folder, folder / "tokenizer.json", "memory://tokenizers/mine"]
    records = [counter(name).record for name in names]
    assert [record.name for record in records] == [str(name) for name in names]
    assert {record.sha256 for record in records} == {hashlib.sha256(content).hexdigest()}


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "absent")
    assert "'a..b': no such folder, and the hub does not give it" in refusal("a..b")
    assert "no such file" in refusal(tmp_path)
    assert "no such file" in refusal("memory://tokenizers/other")


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"\xff\xfe", b'{"model": {"type": "Nope"}}'],
)
def test_a_broken_tokenizer(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert f"'{tmp_path}': tokenizer.json cannot be used" in refusal(tmp_path)
