"""The screen asks before the model calls a tool of a real MCP server."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from screens import POCKET, WIDE, Screen, opener
from typed import Held

from h2o_chat.base.config import Sampling, Settings, ToolServer
from h2o_chat.base.progress import Progress
from h2o_chat.chat.conversation.opening import with_tools
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.engine.lark import json_rule
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.prompt import tool_question
from h2o_chat.tui.prompt.tool_question import ToolQuestion, ask_on_screen

SETTINGS = Settings(model=str(POCKET), budget=1024, threads=1, seed=7)
CALL = {"name": "escapes", "arguments": {}}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters answer at once: nobody has typed before."""
    monkeypatch.setattr(tool_question, "REST_S", 0.0)


@pytest.fixture(scope="module")
def servers() -> Iterator[McpServers]:
    server = Path(__file__).parents[1] / "mcp_server.py"
    found = McpServers([ToolServer("tests", (sys.executable, str(server)), {}, 60.0)])
    yield found
    found.close()


@asynccontextmanager
async def calling(servers: McpServers, call: Any = CALL) -> AsyncIterator[Screen]:
    """The app; every second answer is the call, which is asked for once."""

    def forced(progress: Progress) -> Any:
        chat: Any = opener(SETTINGS)(progress)
        real, rules = chat.engine.generate, [f"start: {json_rule({'const': call})}", ""]

        def generate(*asked: Any) -> Iterator[Any]:
            chat.engine.grammar = rules[0]
            rules.reverse()
            yield from real(*asked)

        chat.engine.generate = generate
        return chat

    servers.allowed.clear()
    app = ChatApp(with_tools(forced, servers), SETTINGS, Sampling(max_tokens=40))
    servers.ask = partial(ask_on_screen, app)
    async with app.run_test(size=WIDE) as pilot:
        screen = Screen(app, pilot)
        await screen.opened()
        await screen.ask("Hello!")
        assert f"may the model call {call['name']}?" in await asked(screen)
        yield screen


async def asked(screen: Screen) -> str:
    """The text of the question, once it is there."""
    await screen.until(lambda: isinstance(screen.app.screen, ToolQuestion), "it is asked")
    return screen.page()


def results(screen: Screen) -> list[str]:
    return [one.text for one in screen.chat.messages if one.role == "tool"]


async def test_a_call_is_asked_for_and_its_result_shown(servers: McpServers) -> None:
    async with calling(servers) as screen:
        pilot = screen.pilot
        await pilot.press("n")
        await screen.answered()
        assert "does not allow" in results(screen)[0]
        await screen.ask("Again!")
        await asked(screen)
        await pilot.press("y")
        await screen.answered()
        assert "red" in results(screen)[1]
        shown = screen.page()
        assert "escapes (untrusted)" in shown
        assert "\x1b" not in shown
        await screen.ask("Once more!")
        await asked(screen)
        await pilot.press("a")
        await screen.answered()
        await screen.say("And more!")
        assert "red" in results(screen)[3], "it was not asked again"
        assert [one.role for one in screen.chat.messages].count("assistant") == 8


async def test_what_is_typed_as_the_question_comes_up_does_not_answer_it(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_question, "REST_S", 2.0)
    async with calling(servers) as screen:
        assert "once more" not in screen.page()
        screen.at_once(*"any way")
        await screen.until(lambda: "once more" in screen.page(), "a key was ignored, and it says so")
        assert isinstance(screen.app.screen, ToolQuestion)
        assert results(screen) == []
        await screen.pilot.pause(2.1)
        await screen.pilot.press("y")
        await screen.answered()
        assert "red" in results(screen)[0]
        assert servers.allowed == set()


async def test_a_message_stays_sent_where_the_results_of_its_tool_are_stopped(
    servers: McpServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(servers) as screen:
        Held(screen, monkeypatch, tokens=0)
        await screen.pilot.press("y")
        await screen.until(lambda: "escapes (untrusted)" in screen.page(), "the results are read")
        await screen.pilot.press("escape")
        await screen.answered()
        assert screen.app.prompt.text == ""
        assert "nothing was sent" not in screen.app.divider.remark
        assert "stopped" in screen.app.divider.remark
        assert [one.role for one in screen.chat.messages][-2:] == ["user", "assistant"]


@pytest.mark.parametrize("leave", ["stop", "quit"])
async def test_whoever_is_asked_may_stop_or_leave(servers: McpServers, leave: str) -> None:
    async with calling(servers) as screen:
        app, pilot = screen.app, screen.pilot
        if leave == "quit":
            await pilot.press("ctrl+q")
        else:
            app.jobs.cancel()
            await screen.answered()
            await screen.until(lambda: not isinstance(app.screen, ToolQuestion), "the question is gone")
            assert results(screen) == []
    app.jobs.wait()


async def test_a_tool_that_hangs_is_stopped(servers: McpServers) -> None:
    own = McpServers([replace(servers.configured[0], timeout_s=1000.0)])
    async with calling(own, {"name": "hangs", "arguments": {}}) as screen:
        app, pilot = screen.app, screen.pilot
        await pilot.press("y")
        await screen.until(lambda: not isinstance(app.screen, ToolQuestion), "it is answered")
        await pilot.press("escape")
        await screen.answered()
        assert results(screen) == []
        await screen.say("Do you like films?")
        assert screen.chat.messages[-1].text
    own.close()
