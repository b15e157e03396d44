"""Tools of a real MCP server in a conversation with the bundled model; a grammar makes its answers calls."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from opened_models import loaded
from talk import POCKET

from h2o_chat.base.config import Sampling, Settings, ToolServer
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.conversation.tool_rounds import ROUNDS, send_and_call, take_tools
from h2o_chat.chat.files import export, importer
from h2o_chat.chat.templates.tool_form import Call
from h2o_chat.chat.tools.mcp_servers import Ask, McpServers, allow, refuse
from h2o_chat.chat.tools.tool_calls import RESULT_CHARACTERS
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.lark import json_rule
from h2o_chat.events.events import Event, Note, Said, Token
from h2o_chat.store import Store

SERVER = str(Path(__file__).parents[1] / "mcp_server.py")
SETTINGS = Settings(model=str(POCKET), budget=2048, threads=1, seed=5)
SAMPLING = Sampling(temperature=0.0, max_tokens=60)
ECHO = Call("echo", {"text": "snow"})


@pytest.fixture(scope="module")
def started() -> Iterator[McpServers]:
    servers = McpServers([ToolServer("tests", (sys.executable, SERVER), {}, 60.0)])
    servers.start()
    assert not servers.notes
    yield servers
    servers.close()


@pytest.fixture
def servers(started: McpServers) -> McpServers:
    started.allowed.clear()
    return started


def grammar_of(call: Call) -> str:
    """The grammar of an answer that is one call."""
    return f"start: {json_rule({'const': {'name': call.name, 'arguments': call.arguments}})}"


def opened(servers: McpServers, ask: Ask, keeper: Keeper | None = None, **others: Any) -> Chat:
    settings = Settings(**asdict(SETTINGS) | others)
    chat = Chat(Engine(loaded(settings), settings), settings, keeper)
    servers.ask = ask
    take_tools(chat, servers)
    return chat


def calls(chat: Chat, call: Call, said: str = "Hello!", rounds: int = 1) -> list[Event]:
    """Says something that is answered by the call, as often as `rounds` says, and then freely."""
    chat.engine.grammar = grammar_of(call)
    events, results = [], 0
    for event in send_and_call(chat, said, SAMPLING):
        events.append(event)
        results += isinstance(event, Said) and event.role == "tool"
        if results == rounds:
            chat.engine.grammar = ""
    return events


def codes(events: list[Event]) -> list[str]:
    """The notes about tools."""
    return [event.code for event in events if isinstance(event, Note) and event.code.startswith("tool")]


def test_a_call_is_shown_made_and_answered(servers: McpServers) -> None:
    chat = opened(servers, allow)
    assert [one.role for one in chat.messages] == ["system"], "the model is told of the tools"
    assert all(one["function"]["name"] in chat.messages[0].text for one in servers.tools)
    events = calls(chat, ECHO)
    assert [one.role for one in chat.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert codes(events) == ["tool"]
    assert json.loads(chat.messages[2].text) == {"name": "echo", "arguments": {"text": "snow"}}
    result = chat.messages[3]
    assert "untrusted" in result.text.partition("\n")[0]
    assert result.text.endswith("\nheard snow")
    places = [(one.first, one.last) for one in chat.messages]
    assert [first for first, _ in places[1:]] == [last + 1 for _, last in places[:-1]], "nothing between"


def test_whoever_says_no_is_obeyed_and_always_is_asked_once(servers: McpServers, tmp_path: Path) -> None:
    asked = []

    def once_then_always(call: Call, cancel: Callable[[], bool]) -> Any:
        asked.append(call)
        return ("no", "once", "always")[len(asked) - 1]

    chat = opened(servers, once_then_always)
    for _ in range(5):
        calls(chat, ECHO)
    heard = [one.text.endswith("heard snow") for one in chat.messages if one.role == "tool"]
    assert heard == [False, True, True, True, True]
    assert asked == [ECHO] * 3
    other = opened(servers, refuse)
    calls(other, ECHO)
    assert other.messages[3].text.endswith("heard snow"), "the session goes on in another conversation"


def test_the_rounds_of_a_message_have_an_end(servers: McpServers) -> None:
    chat = opened(servers, allow)
    events = calls(chat, ECHO, rounds=1000)
    assert codes(events)[-1] == "tool-rounds"
    assert [one.role for one in chat.messages].count("tool") == ROUNDS


def test_what_does_not_exist_is_not_called(servers: McpServers) -> None:
    chat = opened(servers, allow)
    calls(chat, Call("rm", {"path": "/"}))
    assert "no tool" in chat.messages[3].text
    calls(chat, Call("echo", {"wrong": 1}))
    assert "text" in chat.messages[-2].text, "the server says what is missing"


def test_a_long_result_is_cut_and_marks_in_one_are_text(servers: McpServers, store: Store) -> None:
    chat = opened(servers, allow, budget=256)
    chat.keeper = Keeper(store, None, chat.session, asdict(chat.settings))
    calls(chat, Call("big", {}))
    assert RESULT_CHARACTERS < len(chat.messages[3].text) < RESULT_CHARACTERS + 100
    calls(chat, ECHO)
    calls(chat, Call("escapes", {}))
    special = {*chat.engine.tokenizer.all_special_ids}
    stored = [one for one in chat.keeper.path(chat.keeper.leaf) if one.role == "tool"]
    _, plain, hostile = ([number for number in one.ids if number in special] for one in stored)
    assert "<|im_end|>" in stored[2].text
    assert plain == hostile


@pytest.mark.parametrize("name", ["hangs", "dies"])
def test_a_tool_that_fails_ends_its_call_and_not_the_chat(name: str) -> None:
    servers = McpServers([ToolServer("tests", (sys.executable, SERVER), {}, 1.0)])
    chat = opened(servers, allow)
    began = time.monotonic()
    calls(chat, Call(name, {}))
    assert time.monotonic() - began < 30
    said = {"hangs": "No answer within 1 s", "dies": "has failed"}[name]
    assert said in chat.messages[3].text
    assert chat.messages[4].finish in ("eos", "length")
    calls(chat, ECHO)
    assert chat.messages[-2].text.endswith("heard snow"), "one that has died is started again"
    began = time.monotonic()
    servers.close()
    assert time.monotonic() - began < 8, "it is killed where it hangs"


def test_a_server_that_does_not_start_is_said_and_the_others_work() -> None:
    gone = ToolServer("gone", ("/no/such/program",), {}, 1.0)
    ended = ToolServer("ended", (sys.executable, "-c", "raise SystemExit(3)"), {}, 1.0)
    servers = McpServers([gone, ToolServer("tests", (sys.executable, SERVER), {}, 60.0), ended])
    chat = opened(servers, allow)
    assert ["gone" in note.message or "ended" in note.message for note in chat.notes] == [True, True]
    calls(chat, ECHO)
    assert chat.messages[3].text.endswith("heard snow")
    servers.close()


def test_who_begins_without_tools_and_resumes_with_them_is_told(servers: McpServers, store: Store) -> None:
    chat = Chat(Engine(loaded(SETTINGS), SETTINGS), SETTINGS)
    chat.keeper = Keeper(store, None, chat.session, asdict(SETTINGS))
    list(chat.send("Hello!", SAMPLING))
    take_tools(chat, servers)
    (note,) = chat.notes
    assert note.code == "mcp"
    assert all(one["function"]["name"] in note.message for one in servers.tools)
    with_tools = opened(servers, allow, Keeper(store, None, chat.session, asdict(SETTINGS)))
    list(with_tools.send("Hello!", SAMPLING))
    take_tools(with_tools, servers)
    assert not with_tools.notes


def test_calls_are_stored_resumed_exported_and_gone_back_over(servers: McpServers, store: Store) -> None:
    keeper = Keeper(store, None, opened(servers, allow).session, asdict(SETTINGS))
    chat = opened(servers, allow, keeper)
    calls(chat, ECHO)
    assert keeper.conversation is not None
    before = [(one.role, one.text, one.first, one.last) for one in chat.messages]
    keeper.close()
    again = opened(servers, allow, Keeper(store, keeper.conversation, chat.session, asdict(SETTINGS)))
    assert again.resume(lambda _: None)
    assert [(one.role, one.text, one.first, one.last) for one in again.messages] == before
    tokens = [
        [event.id for event in send_and_call(one, "And now?", SAMPLING) if isinstance(event, Token)]
        for one in (again, chat)
    ]
    assert tokens[0] == tokens[1], "a conversation that never ended would answer the same"
    told = export.to_json(store.whole(keeper.conversation))
    (found,) = importer.parse(told.encode(), "it")
    assert [one.role for one in found.messages][:5] == [role for role, *_ in before]
    again.engine.grammar = ""
    asked = max(index for index, one in enumerate(again.messages) if one.role == "user")
    list(going_back.edit(again, asked, again.messages[asked].text, SAMPLING))
    assert [one.role for one in again.messages] == [*(role for role, *_ in before), "user", "assistant"]
