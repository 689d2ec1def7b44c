"""Documents of plain text: passages that overlap, since a file may be larger than memory."""

import codecs
from collections.abc import Iterator

from services.data.contamination.files import Part
from services.data.contamination.lines import RowCounter, RowError, open_stream, read_blocks
from services.data.contamination.tally import Document
from shared.reading import reading

# Characters. The overlap has a long problem with its solution as a whole in one of two passages.
_PASSAGE = 1 << 19
_OVERLAP = 1 << 16
_BLANKS = (" ", "\n", "\t")


def read_passages(part: Part, counter: RowCounter) -> Iterator[Document]:
    """Yield passages of about half a million characters; their row is that of their first line.

    They begin and end at a blank and overlap by 64 Ki characters. A word longer than a passage is
    cut.

    Raises:
        RowError: While iterating: bytes that are not UTF-8, or damaged compressed data.
        DataError: While iterating: the file cannot be read.
    """
    counter.rows = 1
    held = ""
    for piece in _decoded(part):
        held += piece
        while len(held) > _PASSAGE:
            end = _blank_before(held, _PASSAGE)
            yield Document(counter.rows, [held[:end]])
            start = _blank_before(held, end - _OVERLAP)
            counter.rows += held.count("\n", 0, start)
            held = held[start:]
    if held:
        yield Document(counter.rows, [held])


def _decoded(part: Part) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 1
    with reading(part.path), open_stream(part) as stream:
        for block in read_blocks(part, stream):
            yield _decode(decoder, block, lines)
            lines += block.count(b"\n")
        yield _decode(decoder, b"", lines, final=True)


def _decode(
    decoder: codecs.IncrementalDecoder, block: bytes, line: int, final: bool = False
) -> str:
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        raise RowError(line, "not UTF-8; convert the file") from None


def _blank_before(text: str, end: int) -> int:
    """The last blank of those before ``end`` that are near it, else ``end``."""
    nearest = max(text.rfind(blank, end - _OVERLAP // 2, end) for blank in _BLANKS)
    return nearest if nearest > 0 else end
