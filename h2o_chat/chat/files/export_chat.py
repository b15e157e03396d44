"""The present conversation as a file."""

from pathlib import Path

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import as_conversation
from h2o_chat.chat.files.export import FORMATS, file_name, to_html, write_file
from h2o_chat.store import Conversation


def present_conversation(chat: Chat) -> Conversation:
    """The present conversation; where it is not stored, what is on the screen.

    Raises:
        StoreError: it cannot be read.
    """
    if chat.keeper and chat.keeper.conversation:
        chat.keeper.catch_up()
        return chat.keeper.store.whole(chat.keeper.conversation)
    return as_conversation(chat.messages, chat.session.model)


def export(chat: Chat, words: str) -> Path:
    """Writes the conversation as the words of `/export` say: `md|json|html [FILE] [--force]`; returns the
    path.

    Raises:
        UsageError: no such format or folder, or the file is there.
        StoreError: it cannot be read, or not be written.
    """
    rest, _, last = words.rpartition(" ")
    force = last == "--force"  # a word of its own: `notes--force` is the name of a file
    kind, _, name = (rest if force else words).strip().partition(" ")
    if kind not in FORMATS:
        raise UsageError(f"{kind!r} is no format." if kind else "As what?", "/export md, json or html [FILE]")
    conversation = present_conversation(chat)
    text = to_html(conversation, heat(chat)) if kind == "html" else FORMATS[kind](conversation)
    try:
        path = Path(name.strip()).expanduser() if name.strip() else Path()
    except RuntimeError as error:  # ~nobody
        raise UsageError(f"There is no such folder: {error}") from error
    if path.is_dir():
        path = path / file_name(conversation, kind)
    write_file(path, text, force)
    return path.resolve()


def heat(chat: Chat) -> dict[int, list[tuple[str, float]]]:
    """(text, hold) of the tokens of each stored message, by its number.

    Raises:
        StoreError: it cannot be read.
    """
    path = chat.keeper.path(chat.keeper.leaf) if chat.keeper else []
    found = {message.id: chat.holds.by_token(message, chat.engine.tokenizer) for message in path}
    return {message: tokens for message, tokens in found.items() if tokens}
