"""May a session go on with the run that earlier ones began? Its answers are to be of one kind."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_SHOWN = 200
_OF_THE_SERVER = {"model": "model", "chat_template_sha256": "chat template"}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What model, chat template or prompt the answers so far are of that this session's were not.

    Both are facts as ``run.json`` has them. What one of them does not know, does not differ.
    """
    return next(_differences(before, now), None)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if _differ(before.get("model"), now.get("model")):
        yield f"of the model {before['model']!r}, the server offers {now['model']!r}"
    for key, name in _OF_THE_SERVER.items():
        theirs, ours = (_said(facts.get("generator"), key) for facts in (before, now))
        if _differ(theirs, ours):
            yield f"of the {name} {_listed(theirs)}, the generator has {_listed(ours)}"
    for dataset, prompt in (now.get("prompts") or {}).items():
        if _differ((before.get("prompts") or {}).get(dataset), prompt):
            yield f"to another prompt template of {dataset}"


def _differ(before: object, now: object) -> bool:
    return bool(before) and bool(now) and before != now


def _said(generator: object, key: str) -> set[str]:
    """The values under ``key`` of one server's info, or of those of several by URL, as text."""
    if not isinstance(generator, dict):
        return set()
    by_url = [info for name, info in generator.items() if "://" in name and isinstance(info, dict)]
    values = (info.get(key) for info in by_url or [generator])
    return {_text(value) for value in values if value}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _listed(values: set[str]) -> str:
    return " and ".join(value[:_SHOWN] for value in sorted(values))
