"""Sends a message, then makes the calls of the answers to it, round by round."""

from collections.abc import Iterator, Sequence

from h2o_chat.base.config import Sampling
from h2o_chat.base.progress import ShouldStop, never
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.chat.tools.tool_calls import ToolCalls
from h2o_chat.events.events import Event, Note

ROUNDS = 8
"""Most answers with calls to one message."""


def take_tools(chat: Chat, servers: McpServers) -> None:
    """Gives a conversation tools; one that has begun without them is not told of them.

    Raises:
        UsageError: the package `mcp` is not installed.
    """
    servers.start()
    begun, chat.tools = chat.begun, ToolCalls(servers, chat.template)
    chat.notes += chat.tools.notes()
    if not begun:
        chat.begin_blank()


def send_and_call(
    chat: Chat,
    text: str,
    sampling: Sampling,
    cancel: ShouldStop = never,
    *,
    pin: bool = False,
    avoid: Sequence[str] = (),
) -> Iterator[Event]:
    """`Chat.send`; then makes the calls of the answer, sends their results, and so on while there are any."""
    yield from chat.send(text, sampling, cancel, pin=pin, avoid=avoid)
    for number in range(ROUNDS + 1):
        last = chat.messages[-1] if chat.tools and chat.messages else None
        if last is None or last.finish not in ("eos", "stop") or cancel():
            return
        assert chat.tools is not None
        if not (calls := chat.tools.calls_in(last.text)):
            return
        if number == ROUNDS:
            yield Note("tool-rounds", f"The calls of this answer are not made: {ROUNDS} rounds are the most.")
            return
        results = yield from chat.tools.called(calls, cancel)
        if cancel():
            return
        yield from chat.send(results, sampling, cancel, role="tool")
