import asyncio

from hypothesis import given
from hypothesis import strategies as st

from services.sandbox.admission import Admission, QueueFullError
from tests.sandbox.conftest import Sandbox, StartSandbox, until

WAIT = "import time; time.sleep(60)"


async def _reaches(sandbox: Sandbox, metric: str, value: float) -> None:
    async def reached() -> bool:
        return await sandbox.metric(metric) == value

    await until(reached)


async def test_full_queue_is_503_with_retry_after(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(concurrency=1, queue_limit=1)
    running = asyncio.create_task(sandbox.run(WAIT, run_timeout=60))
    await _reaches(sandbox, "plumbline_sandbox_in_flight", 1)
    waiting = asyncio.create_task(sandbox.run("print('my turn')"))
    await _reaches(sandbox, "plumbline_sandbox_queued", 1)
    async with sandbox.session.post(
        f"{sandbox.url}/run_code", json={"code": "", "language": "python"}
    ) as answer:
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
    running.cancel()
    assert (await waiting)["run_result"]["stdout"] == "my turn\n"


async def test_waiting_costs_no_run_time(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(concurrency=1)
    code = "import time; time.sleep(0.7)"
    answers = await asyncio.gather(*(sandbox.run(code, run_timeout=3) for _ in range(5)))
    assert [answer["status"] for answer in answers] == ["Success"] * 5
    assert await sandbox.metric('plumbline_sandbox_requests_total{outcome="Success"}') == 5
    assert await sandbox.metric("plumbline_sandbox_busy_seconds_total") >= 3.5


@given(st.lists(st.sampled_from(["come", "leave", "finish"]), max_size=60))
async def test_slots_are_never_lost_nor_doubled(steps: list[str]):
    """Whatever comes, leaves and finishes: distinct slots, in order, and all free at the end."""
    admission = Admission(concurrency=2, queue_limit=3)
    held: list[int] = []
    done: list[asyncio.Event] = []
    order: list[int] = []

    async def visit(number: int, finish: asyncio.Event) -> None:
        async with admission.slot() as slot:
            assert slot not in held
            held.append(slot)
            order.append(number)
            try:
                await finish.wait()
            finally:
                held.remove(slot)

    visits: list[asyncio.Task[None]] = []
    for number, step in enumerate(steps):
        match step:
            case "come":
                done.append(asyncio.Event())
                visits.append(asyncio.create_task(visit(number, done[-1])))
            case "leave" if visits:
                visits[len(visits) // 2].cancel()
            case "finish" if done:
                done[number % len(done)].set()
        if number % 3:
            await asyncio.sleep(0)
            assert admission.in_flight <= 2
            assert admission.queued <= 3
    for event in done:
        event.set()
    results = await asyncio.gather(*visits, return_exceptions=True)
    expected = (type(None), QueueFullError, asyncio.CancelledError)
    assert all(isinstance(result, expected) for result in results)
    assert (admission.in_flight, admission.queued) == (0, 0)
    assert order == sorted(order)
