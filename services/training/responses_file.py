"""The file of ``data.output_path``: a run's completions as verl's generation leaves them."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import fsspec

from services.training.export import TestsForm
from services.training.verl_tables import Layout, write_responses
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.errors import ConfigError, OutputError
from shared.finished_run import FinishedRun
from shared.prompts import chat_messages
from shared.schemas import Generation, Problem

_KEY = "data.output_path"
_SUFFIX = ".parquet"


class ResponsesFile:
    """A parquet file that verl's ``main_eval`` and ``plumb judge --completions`` read.

    A row is a problem with its messages, its tests (inline, so that any reward function can judge)
    and its completions in ``responses``. A sample whose generation failed is left out, and so is a
    problem without any completion: ``main_eval`` would count an empty answer as a wrong one.
    """

    def __init__(self, config: Config, inputs: Sequence[str]) -> None:
        """Check the path before the run begins.

        Args:
            config: ``data.output_path``, which is not None, and the prompts.
            inputs: Files and folders that the run reads.

        Raises:
            ConfigError: The name is not a parquet file's, or the run reads this file.
            OutputError: The path is a folder's or cannot be written, or its filesystem is not
                installed.
        """
        url = config.data.output_path or ""
        try:
            self._folder, self._name = OutputFolder.of_file(url, "responses.parquet")
        except OutputError as error:
            raise OutputError(f"{_KEY}: {error}") from None
        self._config = config
        if not url.endswith(_SUFFIX):
            raise ConfigError(f"{_KEY} {url}: name a file that ends in {_SUFFIX}")
        place = f"{self._folder.path}/{self._name}"
        for given in filter(None, inputs):
            path = fsspec.core.url_to_fs(given)[1].rstrip("/")
            if path in (place, self._folder.path):
                raise ConfigError(f"{_KEY} {url}: the run reads {given}; choose another folder")
        try:
            self._folder.check_writable()
        except OutputError as error:
            raise OutputError(
                f"{_KEY}: {error}; make it writable, or give another path (null writes no file)"
            ) from None

    def write(self, run: FinishedRun, problems: Sequence[Problem]) -> str:
        """Replace the file, and describe it in one line.

        Raises:
            OutputError: The file cannot be written, or the run's cannot be read.
        """
        known = {(problem.dataset, problem.problem_id): problem for problem in problems}
        written: list[int] = []

        def answered() -> Iterator[tuple[Problem, list[Generation]]]:
            for name, found in groupby(run.generations(), _problem_name):
                given = [one for one in found if one.error is None]
                if given:
                    written.append(len(given))
                    yield known[name], given

        layout = Layout(lambda one: chat_messages(one, self._config), TestsForm.INLINE)
        try:
            write_responses(self._folder, self._name, answered(), layout)
        except OutputError as error:
            raise OutputError(f"{_KEY}: {error}; repeat the command to write it again") from None
        left_out = run.record.samples - sum(written)
        rest = f"; {left_out} samples without a completion are left out" if left_out else ""
        place = f"{self._folder.shown.rstrip('/')}/{self._name}"
        return f"{sum(written)} completions of {len(written)} problems in {place}{rest}"


def _problem_name(generation: Generation) -> tuple[str, str]:
    return generation.dataset, generation.problem_id
