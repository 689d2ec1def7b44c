"""`python -m tests.bench.data`: throughput and memory of the contamination check.

A corpus of JSONL is made of the standard library's source with a few problems leaked into it, then
checked. The lower bound is the time in which the same bytes are only read and parsed as JSON.
"""

import argparse
import json
import os
import random
import resource
import sysconfig
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from services.data.contamination.check import check_contamination
from services.data.contamination.corpus import find_corpus, read_chunks, read_documents
from services.data.records import ProblemText

PROBLEMS, SOLUTION_LINES, DOCUMENT_CHARACTERS, LEAK_EVERY = 1000, 12, 3000, 20_000


def library() -> list[str]:
    """The standard library's source, in documents as long as a web page."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [*sorted(folder.glob("*.py")), *sorted(folder.glob("[a-z]*/*.py"))]
    texts = [path.read_text("utf-8", "replace") for path in paths if "-packages" not in str(path)]
    size = DOCUMENT_CHARACTERS
    return [text[at : at + size] for text in texts for at in range(0, len(text), size)]


def problems() -> list[ProblemText]:
    """Prompts and solutions of words of their own, as long as HumanEval's."""
    dice = random.Random(0)
    words = [f"{start}{end}" for start in ("ba", "co", "the", "for", "in") for end in "abcdefgh"]
    return [
        ProblemText(
            "bench",
            str(number),
            " ".join(dice.choices(words, k=70)),
            ("\n".join(" ".join(dice.choices(words, k=6)) for _ in range(SOLUTION_LINES)),),
        )
        for number in range(PROBLEMS)
    ]


def write_corpus(path: Path, megabytes: int) -> int:
    """Write documents of shuffled lines, and return how many problems were leaked."""
    dice = random.Random(1)
    documents = [text.splitlines() for text in library()]
    evaluation = problems()
    size = number = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1_000_000:
            lines = dice.choice(documents)
            if number % LEAK_EVERY == 0:
                leaked = evaluation[number // LEAK_EVERY % PROBLEMS].statement
                lines = [*lines[:5], leaked.upper(), *lines[5:]]
            row = {"id": number, "text": "\n".join(lines), "meta": {"source": "bench"}}
            size += file.write(json.dumps(row) + "\n")
            number += 1
    return min(PROBLEMS, -(-number // LEAK_EVERY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with TemporaryDirectory(prefix="bench-data-") as folder:
        path = Path(folder) / "corpus.jsonl"
        leaked = write_corpus(path, options.megabytes)
        size = path.stat().st_size / 1e6
        files, _ = find_corpus([str(path)])
        began = time.perf_counter()
        chunks = (chunk for file in files for chunk in read_chunks(file))
        documents = sum(1 for chunk in chunks for _ in read_documents(chunk))
        print(f"{size:.0f} MB, {documents} documents, {leaked} problems leaked into them")
        print(f"read and parsed: {size / (time.perf_counter() - began):.0f} MB/s, one process")
        began = time.perf_counter()
        report = check_contamination(problems(), [str(path)], processes=options.processes)
        seconds = time.perf_counter() - began
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    memory = max(one.ru_maxrss for one in used) / 1000
    rate = f"{size / seconds:.0f} MB/s, {options.processes} processes"
    print(f"checked: {seconds:.1f} s, {rate}, at most {memory:.0f} MB in one of them")
    assert len(report.contaminated) == leaked, f"{len(report.contaminated)} problems found"


if __name__ == "__main__":
    main()
