"""OpenRLHF's, slime's and NeMo-Gym's requests, as these projects send them, over real judges."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, encode_basic_auth, web
from redis import Redis

from services.reward.aliases import AliasRoutes
from services.reward.aliases.base import without_end
from services.reward.metrics import RewardMetrics
from services.reward.models import ScoreOptions, ScoreResult
from services.reward.settings import RewardSettings
from shared.datasets import read_datasets
from shared.reference import reference_of
from shared.service.access import Access
from shared.service.bodies import Bodies
from shared.service.server import listening, make_application
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.reward.servers import DEMO, Served, demo_completions, eventually, judge_process, served

PROMPT = "<|im_start|>user\nSolve it.<|im_end|>\n<|im_start|>assistant\n"
END = "<|im_end|>\n"
TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
ECHO, HALF = "```python\nprint(input())\n```", "```python\ninput()\nprint(1)\n```"
# What is missing is found by the judge alone.
BROKEN = {"test_list": ["assert f() == 1"], "test_setup_code": "import a_module_that_is_missing"}
REFERENCES = {
    (problem.dataset, problem.problem_id): reference_of(problem).text
    for problem in read_datasets([str(DEMO / "data")])
}


def openrlhf(label: object, completion: str) -> dict[str, object]:
    return {"query": [PROMPT + completion + END], "prompts": [PROMPT], "labels": [label]}


def slime(label: object, completion: str) -> dict[str, object]:
    return {"prompt": PROMPT, "response": completion + END, "label": label}


def gym(label: object, completion: str, **metadata: object) -> dict[str, object]:
    """A row of ``code_gen``, and the dump of a response."""
    reasoning = {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "?"}]}
    text = {"type": "output_text", "text": completion, "annotations": []}
    message = {
        "id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text],
    }  # fmt: skip
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Solve it."}]},
        "response": {
            "id": "x",
            "object": "response",
            "output": [reasoning, message],
            "usage": None,
        },
        "verifier_metadata": {"ground_truth": label, **metadata},
        "agent_ref": {"name": "a"},
    }


Ask = Callable[[object, str], dict[str, object]]
READ: dict[str, tuple[Ask, Callable[[Any], float]]] = {
    "/openrlhf": (openrlhf, lambda body: body["rewards"][0]),
    "/slime": (slime, lambda body: body),
    "/verify": (gym, lambda body: body["reward"]),
}


@pytest.fixture
async def unjudged(own_redis_server: RedisServer) -> AsyncIterator[Served]:
    """A service without a judge."""
    with Redis.from_url(own_redis_server.url) as redis:
        async with served(redis, own_redis_server.url) as found:
            yield found


async def post(service: Served, path: str, body: object, **options: Any) -> tuple[int, Any]:
    async with service.client.post(f"{service.url}{path}", json=body, **options) as response:
        return response.status, json.loads(await response.read())


async def test_scores_equal_those_of_the_api(service: Served) -> None:
    recorded = demo_completions()
    given = [recorded[number] for number in (0, 2, 4, 6, 9, 10)]
    labels = [REFERENCES[one["dataset"], one["problem_id"]] for one in given]
    pairs = [(label, one["completion"]) for label, one in zip(labels, given, strict=True)]
    items = [{"ground_truth": label, "completion": text} for label, text in pairs]
    _, answer = await service.score(items=items)
    expected = [one["score"] for one in answer["results"]]
    assert set(expected) >= {0.0, 1.0}
    scores = {}
    for path, (ask, read) in READ.items():
        found = await asyncio.gather(*(post(service, path, ask(*pair)) for pair in pairs))
        scores[path] = [read(body) if status == 200 else status for status, body in found]
    assert scores == dict.fromkeys(READ, expected)


async def test_options_in_the_url(service: Served) -> None:
    scores = {"": 0.5, "?score=accepted": 0.0, "?score=threshold:0.5": 1.0, "?deadline=60": 0.5}
    expected = {path + query: (200, score) for path in READ for query, score in scores.items()}
    found = {}
    for path, (ask, read) in READ.items():
        for query in scores:
            status, body = await post(service, path + query, ask(json.dumps(TESTS), HALF))
            found[path + query] = status, read(body) if status == 200 else body
    assert found == expected


async def test_shape_of_openrlhf(service: Served) -> None:
    body = {
        "query": [f" {PROMPT}{ECHO}{END}", f"{PROMPT}{HALF}</s>"],
        "prompts": [PROMPT, PROMPT],
        "labels": [TESTS, json.dumps(TESTS)],
    }
    status, found = await post(service, "/openrlhf", body)
    assert status == 200
    assert (found["rewards"], found["scores"]) == ([1.0, 0.5], [1.0, 0.5])
    logs = found["extra_logs"]
    assert (logs["accepted"], logs["pass_ratio"]) == ([1.0, 0.0], [1.0, 0.5])
    # OpenRLHF makes a tensor of each.
    assert all(isinstance(value, float) for values in logs.values() for value in values)


async def test_shape_of_nemo_gym(service: Served) -> None:
    metadata = {"unit_tests": {**TESTS, "fn_name": None}, "difficulty": "easy"}
    request = gym(None, ECHO, **metadata)
    status, found = await post(service, "/verify", request)
    assert status == 200
    assert (found["reward"], found["status"], found["accepted"]) == (1.0, "success", 1.0)
    assert found["responses_create_params"] == request["responses_create_params"]
    assert found["response"] == request["response"]
    assert found["verifier_metadata"] == request["verifier_metadata"]
    assert found["agent_ref"] == {"name": "a"}
    assert await post(service, "/seed_session", {}) == (200, {})


async def test_special_tokens_at_the_end_are_no_code(service: Served) -> None:
    status, score = await post(service, "/slime", slime(TESTS, "print(input())\n<|endoftext|> "))
    assert (status, score) == (200, 1.0)
    assert without_end("a <|x|> b") == "a <|x|> b"
    assert without_end("if a <b>") == "if a <b>"
    assert without_end("a\n</s> <|x|><pad>\n") == "a"
    assert without_end("a \n") == "a \n"


@pytest.mark.parametrize("repeated", [" ", "</s>", "</s> "])
def test_repetitions_before_the_end_cost_no_time(repeated: str) -> None:
    """Quadratic time would take longer than a test may."""
    text = repeated * 200_000 + "x"
    assert without_end(text) == text
    assert without_end("x" + repeated.strip() + repeated * 200_000 + "</s>") == "x"


async def test_labels_that_cannot_be_used(service: Served) -> None:
    labels = [
        ("plumbline:humaneval/none#0123456789abcdef", 404),
        (REFERENCES["humaneval", "HumanEval/demo_001"][:-16] + "0" * 16, 409),
        ("plumbline:x", 422),
        ("42", 422),
        ({"inputs": 1}, 422),
        (None, 422),
        ("", 422),
        (7, 422),
        (BROKEN, 422),
    ]
    failures = []
    for path, (ask, _) in READ.items():
        for label, expected in labels:
            status, body = await post(service, path, ask(label, ECHO))
            if status != expected or len(body["error"]) <= 10:
                failures.append((path, label, status, body))
    assert failures == []


async def test_tests_that_cannot_run_are_not_worth_another_try(service: Served) -> None:
    body = {"ground_truth": BROKEN, "completion": ECHO}
    status, found = await post(service, "/v1/score", body)
    assert status == 503 and found["error"].startswith("not judged: test_error")
    _, found = await post(service, "/v1/score", {"items": [body]})
    [result] = found["results"]
    assert (result["reason"], result.get("retry_after")) == ("test_error", None)


async def test_shapes_that_are_refused(service: Served) -> None:
    """Each with the part of the request that is wrong."""
    response = {"response": {"output": []}}
    cases = [
        ("/openrlhf", {"query": ["a"], "prompts": ["a"]}, "labels"),
        ("/openrlhf", {"query": ["a"], "prompts": [], "labels": [TESTS]}, "prompts"),
        ("/openrlhf", {"query": ["a"], "prompts": ["a"], "labels": [1, 2]}, "length"),
        ("/openrlhf", {"query": ["xy"], "prompts": ["y"], "labels": [TESTS]}, "items[0]"),
        ("/slime", {"prompt": "a", "label": "b"}, "response"),
        ("/slime?scores=1", slime(TESTS, ECHO), "'scores'"),
        ("/slime?score=best", slime(TESTS, ECHO), "in the URL: score"),
        ("/slime?score=threshold:2", slime(TESTS, ECHO), "in the URL: score"),
        ("/slime?deadline=-1", slime(TESTS, ECHO), "in the URL: deadline"),
        ("/verify", {"response": {}, "verifier_metadata": {}}, "response.output"),
        ("/verify", response, "verifier_metadata"),
    ]
    failures = []
    for path, body, named in cases:
        status, found = await post(service, path, body)
        if status != 422 or named not in found["error"]:
            failures.append((path, body, status, found))
    assert failures == []


async def test_what_is_not_judged_is_503_and_no_number(unjudged: Served) -> None:
    async def ask_in_vain(path: str) -> None:
        body = READ[path][0](TESTS, ECHO)
        async with unjudged.client.post(
            f"{unjudged.url}{path}?deadline=0.3", json=body
        ) as response:
            assert response.status == 503, path
            assert int(response.headers["Retry-After"]) > 0, path
            assert list(json.loads(await response.read())) == ["error"], path

    await asyncio.gather(*map(ask_in_vain, READ))


async def test_one_unjudged_completion_is_503_for_all(
    redis: Redis, redis_server: RedisServer, judge: None
) -> None:
    async with served(redis, redis_server.url) as service:
        await post(service, "/slime", slime(TESTS, ECHO))  # remembered from now on
        body = openrlhf(TESTS, ECHO)
        slow = "```python\nimport time\ntime.sleep(5)\n```"
        body = {name: [*value, *openrlhf(TESTS, slow)[name]] for name, value in body.items()}  # type: ignore[misc]
        status, found = await post(service, "/openrlhf?deadline=0.5", body)
        assert status == 503
        assert found["error"].startswith("items[1]: not judged")


async def test_what_a_client_gave_up_on_is_judged_and_found_by_its_repetition(
    own_redis_server: RedisServer, unjudged: Served, sandbox_url: str, tmp_path: Path
) -> None:
    """slime and OpenRLHF give up after two or three minutes, and ask again."""
    redis = Redis.from_url(own_redis_server.url)
    body = slime(TESTS, "```python\nprint(input())  # mine\n```")
    first = asyncio.create_task(post(unjudged, "/slime", body))
    await eventually(lambda: redis.llen("rq:queue:judge"))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.sleep(0.3)
    assert redis.llen("rq:queue:judge") == 1
    with judge_process(own_redis_server.url, sandbox_url, tmp_path):
        assert await post(unjudged, "/slime", body) == (200, 1.0)
    redis.close()


class Late:
    """Stands in for the scorer: the test says when its answer comes."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.shuts_down = asyncio.Event()
        self.cancelled = 0

    def deadline_of(self, options: ScoreOptions) -> float:
        return options.deadline

    async def score(self, _items: object, _options: ScoreOptions) -> list[ScoreResult]:
        self.asked.set()
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [ScoreResult(score=1.0, judged=True, status=FinalStatus.SUCCESS)]


@asynccontextmanager
async def late_service(late: Late) -> AsyncIterator[str]:
    """Serve the aliases alone; yields the URL of slime's."""

    async def shut_down(_app: web.Application) -> None:
        late.shuts_down.set()

    app = make_application(Access())
    bodies = Bodies(max_body=1 << 20, max_held=1 << 20)
    AliasRoutes(late, RewardMetrics(), bodies, None).add(app)
    app.on_shutdown.append(shut_down)
    async with listening(app, "127.0.0.1", 0, RewardSettings().connection_limits, 10.0) as port:
        yield f"http://127.0.0.1:{port}/slime"


async def test_a_request_in_flight_is_answered_while_the_service_shuts_down() -> None:
    late = Late()
    async with ClientSession() as client, AsyncExitStack() as serving:
        url = await serving.enter_async_context(late_service(late))
        asked = asyncio.create_task(client.post(url, json=slime(TESTS, ECHO)))
        await late.asked.wait()
        closing = asyncio.create_task(serving.aclose())
        await late.shuts_down.wait()
        late.answer.set()
        async with await asked as response:
            assert (response.status, await response.json()) == (200, 1.0)
        await closing


async def test_what_clients_gave_up_on_ends_with_the_service() -> None:
    late = Late()
    async with ClientSession() as client, late_service(late) as url:
        asked = asyncio.create_task(client.post(url, json=slime(TESTS, ECHO)))
        await late.asked.wait()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    assert late.cancelled == 1


async def test_what_clients_gave_up_on_still_counts_as_held(own_redis_server: RedisServer) -> None:
    url = own_redis_server.url  # nobody judges there
    with Redis.from_url(url) as redis:
        async with served(redis, url, max_body=200_000) as service:
            await _give_up_and_ask(service)


async def _give_up_and_ask(service: Served) -> None:
    for number in range(2):
        body = slime(TESTS, f"{number}" + "x" * 150_000)
        waiting = asyncio.create_task(post(service, "/slime?deadline=3", body))
        await eventually(lambda count=number: service.service.details()["pending"] > count)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    status, found = await post(service, "/slime?deadline=3", slime(TESTS, "y" * 150_000))
    assert status == 429
    assert "hold too much memory" in found["error"]
    await eventually(lambda: service.service.details()["pending"] == 0)
    assert (await post(service, "/slime?deadline=0.1", body))[0] == 503


async def test_the_token_may_be_the_password_of_the_url(
    redis: Redis, redis_server: RedisServer
) -> None:
    expected = {
        None: 401,
        encode_basic_auth("x", "secret"): 422,  # refused for its label, later
        encode_basic_auth("secret", "x"): 401,
        "Bearer secret": 422,
        "Bearer other": 401,
        "Basic !!!": 401,
    }
    statuses = {}
    async with served(redis, redis_server.url, token="secret") as service:
        for path, (ask, _) in READ.items():
            for given in expected:
                headers = {} if given is None else {"Authorization": given}
                status, _ = await post(service, path, ask("42", ECHO), headers=headers)
                statuses[path, given] = status
    assert statuses == {(path, given): expected[given] for path in READ for given in expected}
