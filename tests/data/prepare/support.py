"""Small data sets to prepare, in Plumbline's own layout, and their config."""

import json

from services.data.config import PrepareConfig
from services.data.prepare.pipeline import prepare

PROMPTS = (
    "Read two integers from standard input and print their sum on one line, without any other text "
    "around it; the integers may be negative and are separated by blanks.",
    "A farmer plants carrots in rows. Given the number of rows and the carrots that stand in each "
    "of them, work out how many carrots the farmer harvests when rabbits eat every third row.",
    "Given a sequence of brackets of three kinds, decide whether they are balanced: each closing "
    "bracket has to match the last opening one that is still open. Print yes or no.",
    "The mountain railway sells tickets by altitude. For a list of stations with their altitudes "
    "print the dearest ticket between two neighbouring stations, in whole francs, rounded up.",
)


def row(number, *, prompt=None, **fields):
    """A problem with one test; PROMPTS has the prompt unless another is given."""
    return {
        "dataset": "set",
        "split": "test",
        "problem_id": f"p{number}",
        "prompt": PROMPTS[number] if prompt is None else prompt,
        "data_source": "ours",
        "ground_truth": {"inputs": ["1 2\n"], "outputs": ["3\n"]},
        "difficulty": "easy",
        "sandbox_dataset": "set",
        "sandbox_id": f"p{number}",
        **fields,
    }


class Silent:
    """A progress display that shows nothing."""

    def begin(self, step): ...

    def advance(self): ...

    def end(self, result): ...


class Desk:
    """A folder in which sets are prepared."""

    def __init__(self, folder):
        self.folder = folder
        self.manifests = folder / "manifests"
        self.sets = {}
        self.keys = {}

    def source(self, name, rows, **keys):
        """Write the rows of a set; bytes are a line as they are."""
        path = self.folder / f"{name}.jsonl"
        lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in rows]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        source = {"kind": "local", "path": str(path)}
        self.sets[name] = {"layout": "jsonl", "source": source, **keys}
        return path

    @property
    def config(self):
        return PrepareConfig.model_validate(
            {
                "datasets": self.sets,
                "output": str(self.folder / "eval"),
                "manifests": str(self.manifests),
                "raw": str(self.folder / "raw"),
                **self.keys,
            }
        )

    def prepare(self, progress=None, **options):
        return prepare(self.config, progress or Silent(), **options)

    def listed(self, name):
        """The entries of a list or manifest."""
        text = (self.manifests / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def data(self, name):
        return self.folder / "eval" / f"{name}.parquet"
