"""`rmqctl browse --serve`: the same screens in a web browser, for who has the address with its token."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from textual_serve.server import Server

from rmqctl.formats.errors import UsageError

_TOKEN_BYTES = 16
_HEADERS = {
    # nothing is loaded from elsewhere, and the token is sent nowhere
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_FOREIGN_FONT = re.compile(r"<link[^>]*fonts\.googleapis[^>]*>")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _TokenServer(Server):
    """Serves below /TOKEN/ and refuses everything else. Each page has a process of its own, which only reads."""

    def __init__(self, command: str) -> None:
        super().__init__(command, title="rmqctl browse")
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing."""

    async def handle_index(self, request: web.Request) -> Any:
        """Return the page, with addresses as the web browser has them."""
        self.public_url = f"{request.scheme}://{request.host}"
        page = await super().handle_index(request)
        if isinstance(page, web.Response):
            page.text = _FOREIGN_FONT.sub("", page.text or "")
        return page

    async def guarded_app(self) -> web.Application:
        """Return the application that asks for the token."""

        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            given = request.path.split("/")[1].encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, self.token.encode()):
                raise web.HTTPForbidden(text="the address lacks the token that rmqctl browse printed\n")
            return await handler(request)

        async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
            response.headers.update(_HEADERS)

        guarded = web.Application(middlewares=[guard])
        guarded.on_response_prepare.append(add_headers)
        guarded.add_subapp(f"/{self.token}", await self._make_app())
        return guarded


def serve(arguments: list[str], host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve `rmqctl browse ARGUMENTS` until Ctrl-C; `tell` gets the address. UsageError where it cannot listen."""
    # not the directory that it was started in: python -m would import from there
    command = shlex.join([sys.executable, "-P", "-m", "rmqctl", "browse", *arguments])
    asyncio.run(_serve(_TokenServer(command), host, port, tell))


async def _serve(server: _TokenServer, host: str, port: int, tell: Callable[[str], None]) -> None:
    runner = web.AppRunner(await server.guarded_app(), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UsageError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        name = f"[{host}]" if ":" in host else host
        tell(f"http://{name}:{runner.addresses[0][1]}/{server.token}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
