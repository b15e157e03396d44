"""`h2o-chat --web`: the same screen in a browser, through textual-serve; each tab is a process of its own.

Whoever reaches the page talks to the model and reads what is stored. It is served to this machine alone
unless a flag says otherwise, only to who knows the key in the address, and never to a page of somebody else:
a browser lets any site open a websocket to this machine.
"""

import asyncio
import hmac
import ipaddress
import os
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from h2o_chat.base.deadline import KILLED_S, STEP_S
from h2o_chat.base.errors import ExitCode, UsageError, refusal

ADDRESS = "127.0.0.1:8000"
COOKIE = "h2o-chat-{port}"
LEAVE_S = STEP_S + KILLED_S + 1.0
"""Seconds that the server waits for its screens at the end, longer than they need. A screen that still waits
for the store ends by itself.
"""


def command(flags: Mapping[str, Any]) -> str:
    """The shell command for each tab: this program, with these flags."""
    words = [sys.executable, "-m", "h2o_chat"]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        match value:
            case None | False:
                continue
            case True:
                words.append(flag)
            case list() | tuple():
                words += [f"{flag}={one}" for one in value]
            case _:
                words.append(f"{flag}={value}")
    return f"exec {shlex.join(words)}"  # no shell stays between it and the server


def serve(shell_command: str, address: str, others: bool) -> None:
    """Serves the screen until it is interrupted; says the address on stderr.

    Args:
        address: `HOST:PORT`, as the browser writes it; port 0 takes a free one.
        others: HOST may be another than this machine's own loopback.

    Raises:
        UsageError: no such address, one that others reach, or textual-serve is not installed.
    """
    host, port = _split(address)
    if not others and not _loopback(host):
        raise UsageError(
            f"--web-address {address} can be reached by others: they could read and say everything.",
            "Add --web-others if that is meant; the connection is not encrypted.",
        )
    try:
        from aiohttp import web
        from textual_serve.server import Server
    except ImportError as error:
        raise UsageError(
            f"A browser needs textual-serve, and {error.name} is not installed.",
            "pip install 'h2o-chat[web]'",
        ) from error
    try:
        port = port or _free_port(host)
        key, cookie = secrets.token_urlsafe(16), COOKIE.format(port=port)
        shown = f"[{host}]" if ":" in host else host
        origin = f"http://{shown}:{port}"
        requests = set[asyncio.Task[Any]]()
        """Requests that are being answered: a websocket lives as long as its tab."""

        @web.middleware
        async def guard(request: web.Request, handler: Callable[..., Awaitable[Any]]) -> Any:
            came_from = request.headers.get("Origin", origin)
            known = request.query.get("key") or request.cookies.get(cookie, "")
            knows = hmac.compare_digest(known.encode(), key.encode())
            if request.host != f"{shown}:{port}" or came_from != origin or not knows:
                raise web.HTTPForbidden(text="Open the address that h2o-chat has printed.")
            if (task := asyncio.current_task()) is not None:
                requests.add(task)
                task.add_done_callback(requests.discard)
            response = await handler(request)
            if response.prepared:  # it was a websocket
                return response
            response.set_cookie(cookie, key, httponly=True, samesite="Strict")
            response.headers["Referrer-Policy"] = "no-referrer"
            response.headers["Content-Security-Policy"] = (  # the page would ask Google for a font
                f"default-src 'self' 'unsafe-inline' data:; connect-src 'self' ws://{shown}:{port};"
                " frame-ancestors 'none'"
            )
            return response

        class OurServer(Server):
            def initialize_logging(self) -> None:
                """Textual-serve logs nothing of its own; stdout is data."""

            async def on_startup(self, app: web.Application) -> None:
                self.said = asyncio.create_task(_say(f"h2o-chat: open {origin}/?key={key}", host, port))

            leaving = False

            def request_exit(self) -> None:
                if self.leaving:  # asked once more
                    os._exit(ExitCode.OK)
                self.leaving = True
                super().request_exit()

            async def on_shutdown(self, app: web.Application) -> None:
                """Ends every tab, as if it was closed; aiohttp would wait a minute for that."""
                for task in requests:
                    task.cancel()
                if requests and (await asyncio.wait(requests, timeout=LEAVE_S))[1]:
                    os._exit(ExitCode.OK)

            async def _make_app(self) -> web.Application:
                app = await super()._make_app()
                app.middlewares.append(guard)
                return app

        OurServer(shell_command, host=host, port=port, title="h2o-chat", public_url=origin).serve()
    except OSError as error:
        raise UsageError(
            f"{address} cannot be had: {refusal(error)}.", "Choose another: --web-address 127.0.0.1:0."
        ) from error


async def _say(address: str, host: str, port: int) -> None:
    """Says the address as soon as the server listens: aiohttp starts its application before that."""
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            break
    writer.close()
    sys.stderr.write(f"{address}\n  ctrl+c ends it\n")
    sys.stderr.flush()


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"--web-address is {address!a}.", f"It is HOST:PORT, such as {ADDRESS}.")
    return host, int(port)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _free_port(host: str) -> int:
    import socket

    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
        return int(free.getsockname()[1])
