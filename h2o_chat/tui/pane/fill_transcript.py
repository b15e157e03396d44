from collections.abc import Callable

from h2o_chat.chat.commands.surface import ChatLike
from h2o_chat.chat.conversation.greeting import greeting
from h2o_chat.chat.conversation.spans import was_read
from h2o_chat.tui.pane.jobs import SHOWN_MESSAGES
from h2o_chat.tui.transcript.drawing import recalled_from
from h2o_chat.tui.transcript.messages import Messages
from h2o_chat.tui.transcript.shown_tokens import Tokens


def fill_transcript(messages: Messages, chat: ChatLike, speaker: Callable[[str], str]) -> None:
    """Shows a greeting and the last messages of a conversation."""
    messages.note(greeting(chat.session))
    earlier = max(len(chat.messages) - SHOWN_MESSAGES, 0)
    if earlier:
        messages.note(f"{earlier} earlier messages are not shown here (h2o-chat sessions show)")
    for index, message in enumerate(chat.messages[earlier:], earlier):
        hold = message.hold if was_read(message) else None
        tokens = Tokens(message.first, message.texts) if message.texts else None
        who, said = message.role, message.text
        messages.message(who, speaker(who), said, index, message.finish, hold, tokens)
        if message.recalled:
            messages.by_index[index].remark = recalled_from(one.index for one in message.recalled)
    show_marks(messages, chat)


def show_marks(messages: Messages, chat: ChatLike) -> None:
    """Shows which messages are pinned, and where branches part."""
    pinned = {n for n, one in enumerate(chat.messages) if one.pinned}
    branches = {n: one.branch for n, one in enumerate(chat.messages) if one.branch}
    messages.show_marks(pinned, branches)
