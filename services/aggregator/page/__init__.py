"""The web page: files as they are, which ask the API; nothing is built and nothing is fetched."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# What a model wrote is hostile text: no script but the page's own files runs, whatever is in it.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_page(app: web.Application) -> None:
    """Serve ``/`` and the files that it names."""
    for path in sorted(_FOLDER.iterdir()):
        route = "/" if path.name == "index.html" else f"/static/{path.name}"
        app.router.add_get(route, _file(path))


def _file(path: Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    body, kind = path.read_bytes(), _TYPES[path.suffix]

    async def serve(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=_HEADERS)

    return serve
