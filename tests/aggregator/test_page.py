"""The page's files: served whole, with a policy under which nothing but them runs."""

import re
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

import services.aggregator.page as page

STATIC = Path(page.__file__).parent / "static"
FILES = sorted(path.name for path in STATIC.iterdir())


@pytest.fixture
async def client():
    app = web.Application()
    page.add_page(app)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize("name", FILES)
async def test_a_file_is_served_with_the_policy(client, name):
    async with client.get("/" if name == "index.html" else f"/static/{name}") as answer:
        assert answer.status == 200
        assert await answer.read() == (STATIC / name).read_bytes()
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    assert "unsafe" not in policy


async def test_nothing_else_is_served(client):
    for path in ("/static/", "/static/..%2f__init__.py", "/static/none.js"):
        async with client.get(path) as answer:
            assert answer.status == 404


def test_files_name_only_files_that_there_are():
    named = set()
    for name in FILES:
        text = (STATIC / name).read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
        named |= set(re.findall(r'"(?:/static|\.)/([\w.]+)"', text))
    assert named == set(FILES) - {"index.html"}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_text_of_data_is_never_parsed_as_markup(name):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    )
    assert not re.search(forbidden, (STATIC / name).read_text())
