"""Runs the MCP servers of the configuration, as processes, and calls their tools.

One thread with an event loop speaks with all of them. Only `start` imports `mcp`, which takes two seconds.
"""

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Literal

from h2o_chat.base.config import ToolServer
from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.templates.tool_form import Call
from h2o_chat.events.events import Note
from h2o_chat.store import clean

if TYPE_CHECKING:
    from mcp import Client

START_S, END_S = 30.0, 8.0
"""Longest wait until the servers tell their tools, and until they have ended."""
LOOK_S = 0.05
"""Between two looks whether a person has stopped a call."""
TOOLS = 128
"""Most tools of all servers: the model reads about each."""
Ask = Callable[[Call, ShouldStop], Literal["once", "always", "no"]]
"""Asks a person whether a call may be made, until the second function says that it was cancelled."""


refuse: Ask = lambda call, cancel: "no"  # noqa: E731
allow: Ask = lambda call, cancel: "once"  # noqa: E731
Begun = tuple["Client", list[Any]]


class McpServers:
    """The servers, for all conversations of this process; nothing runs before `start`.

    Attributes:
        tools: what they can do, in the form of OpenAI's API.
        allowed: names of tools that a person has allowed until the program ends.
        ask: asks for each call of another.
        notes: which servers, or tools, are not there.
    """

    def __init__(self, servers: Sequence[ToolServer]) -> None:
        self.configured = servers
        self.tools: list[dict[str, Any]] = []
        self.allowed: set[str] = set()
        self.ask: Ask = refuse
        self.notes: list[Note] = []
        self._calls: dict[str, ToolServer] = {}
        self._clients: dict[str, Client] = {}
        """By the name of their server; of one that has ended there is none."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event
        self._held: list[Future[None]] = []

    def start(self) -> None:
        """Starts all servers and learns their tools, once; UsageError: the package `mcp` is not installed."""
        if self._loop is not None:
            return
        try:
            import mcp  # noqa: F401  (whether it is there)
        except ImportError as error:
            hint = "pip install 'h2o-chat[mcp]', or remove [mcp.NAME] from config.toml."
            raise UsageError("The tools in config.toml need the package mcp.", hint) from error
        logging.getLogger("mcp").addHandler(logging.NullHandler())  # else it writes over the screen
        logging.getLogger("mcp").propagate = False
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True).start()
        atexit.register(self.close)
        begun: list[Future[Begun]] = [Future() for _ in self.configured]
        for server, future in zip(self.configured, begun, strict=True):
            self._held.append(asyncio.run_coroutine_threadsafe(self._hold(server, future), self._loop))
        wait(begun, START_S)
        for server, future in zip(self.configured, begun, strict=True):
            if future.done() and not future.exception():
                self._add(server, *future.result())
                continue
            why = _words(future.exception()) if future.done() else f"it is silent for {START_S:g} s"
            hint = f"Try its command by hand: {' '.join(server.command)}"
            self.notes.append(Note("mcp", f"The tools of {server.name} are not there: {why}.", hint))

    async def _hold(self, server: ToolServer, begun: "Future[Begun]") -> None:
        """Keeps a server open until all end: `mcp` wants it closed by the task that opened it."""
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        program, *arguments = server.command
        asked = StdioServerParameters(command=program, args=arguments, env=dict(server.env))
        with open(os.devnull, "w") as nowhere:  # what it writes to stderr would stand on the screen
            try:
                async with Client(stdio_client(asked, errlog=nowhere)) as client:
                    tools, page = list[Any](), None
                    while len(tools) <= TOOLS:
                        listed = await client.list_tools(cursor=page)
                        tools += listed.tools
                        if (page := listed.next_cursor) is None:
                            break
                    begun.set_result((client, tools))
                    await self._over.wait()
            except Exception as error:
                if not begun.done():
                    begun.set_exception(error)
                # Later it can only fail to end in order; its calls have told the model so.

    def _add(self, server: ToolServer, client: "Client", tools: Sequence[Any]) -> None:
        self._clients[server.name] = client
        for one in tools:
            name = clean(one.name)
            if name in self._calls or len(self.tools) >= TOOLS:
                why = "another server has one" if name in self._calls else f"{TOOLS} tools are the most"
                self.notes.append(Note("mcp", f"{name} of {server.name} is left out: {why}."))
                continue
            self._calls[name] = server
            described = {"description": one.description or "", "parameters": one.input_schema}
            self.tools.append({"type": "function", "function": {"name": name, **described}})

    def call(self, name: str, arguments: dict[str, Any], cancel: ShouldStop) -> str:
        """The text that a tool answers, or why there is none: the model reads both."""
        assert self._loop is not None
        server = self._calls[name]
        starts_s = 0.0 if server.name in self._clients else START_S
        end = time.monotonic() + server.timeout_s + starts_s
        result = asyncio.run_coroutine_threadsafe(self._result(server, name, arguments), self._loop)
        while not wait([result], LOOK_S).done:
            if cancel() or time.monotonic() > end:
                result.cancel()
                return "Stopped by the user." if cancel() else f"No answer within {server.timeout_s:g} s."
        if error := result.exception():
            return f"The call has failed: {_words(error)}."
        blocks = result.result().content
        return clean("\n".join(getattr(one, "text", f"[{one.type} left out]") for one in blocks))

    async def _result(self, server: ToolServer, name: str, arguments: dict[str, Any]) -> Any:
        """Calls a tool; starts its server again where that has ended."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        if server.name not in self._clients:
            begun, loop = Future[Begun](), asyncio.get_running_loop()
            self._held.append(asyncio.run_coroutine_threadsafe(self._hold(server, begun), loop))
            self._clients[server.name], _ = await asyncio.wrap_future(begun)
        try:
            return await self._clients[server.name].call_tool(name, arguments)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                del self._clients[server.name]
            raise

    def close(self) -> None:
        """Ends the servers; one that does not end by itself is killed."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            wait(self._held, END_S)


def _words(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".: ")
