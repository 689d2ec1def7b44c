"""verl's own `main_generation_server`, unmodified, with its two steps timed from outside.

`python -m tests.bench.generation.verl_server TIMES OVERRIDE...`: a JSON object of the seconds of
both steps, of what all answers together count, and of the shared memory that the script is going to
leave behind, goes to the file TIMES.
"""

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from verl.trainer import main_generation_server as theirs

from services.generator.backends.verl.cleanup import TAG, shared_memory

_STEPS = ("start_server", "generate")


def main() -> None:
    times, seconds = Path(sys.argv.pop(1)), {}

    def timed(step: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = await step(*arguments)
            seconds[step.__name__] = time.perf_counter() - began
            if step.__name__ == "generate":
                found = {**_counted(result), "shared_memory": shared_memory(os.environ[TAG])}
                times.write_text(json.dumps({**seconds, **found}))
            return result

        return run

    for name in _STEPS:
        setattr(theirs, name, timed(getattr(theirs, name)))
    theirs.main()


def _counted(answers: list[list[Any]]) -> dict[str, int]:
    usages = [answer.usage for replica in answers for answer in replica]
    return {
        "answers": len(usages),
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "completion_tokens": sum(usage.completion_tokens for usage in usages),
    }


if __name__ == "__main__":
    main()
