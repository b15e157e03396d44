"""Sends a message, then makes the calls of tools that its answers ask for, round by round."""

from collections.abc import Iterator, Sequence

from h2o_chat.base.config import Sampling
from h2o_chat.base.progress import ShouldStop, never
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.chat.tools.tool_calls import ToolCalls
from h2o_chat.events.events import Event, Note
from h2o_chat.models.tokenizer_calls import text_of

MAY_CALL = ("eos", "stop")
"""The ends of answers whose calls are made: others are not complete."""
ROUNDS = 8
"""Most answers with calls to one message."""


def take_tools(chat: Chat, servers: McpServers) -> None:
    """Gives a conversation tools; a note names those that the model of one that has begun does not know."""
    servers.start()
    begun, chat.tools = chat.begun, ToolCalls(servers, chat.template)
    chat.notes += chat.tools.notes()
    if not begun:
        chat.begin_blank()
    elif chat.keeper:
        first = next((one.ids for one in chat.keeper.path(chat.keeper.leaf) if one.ids), ())
        read = text_of(chat.engine.tokenizer, first)
        if missing := [name for name in sorted(chat.tools.names) if f'"{name}"' not in read]:
            what = f"This conversation began without {', '.join(missing)}: the model does not know of them."
            chat.notes.append(Note("mcp", what, "A new conversation begins with all tools."))


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
        if last is None or last.finish not in MAY_CALL or cancel():
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
