"""The bodies of the slash commands, for the screen and for `--plain`; `table.py` lists them."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from h2o_chat.base.errors import UsageError
from h2o_chat.base.glyphs import percent, size
from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.commands import settable
from h2o_chat.chat.commands.surface import Opened, Surface
from h2o_chat.chat.conversation import going_back, remarks
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.chat import pin as pin_message
from h2o_chat.chat.conversation.message import as_conversation, no_such, numbered
from h2o_chat.chat.conversation.opening import model_of
from h2o_chat.chat.files.export import FORMATS, file_name, write_file
from h2o_chat.chat.memory import in_words
from h2o_chat.events.events import Event, Note, ReadProgress
from h2o_chat.models.here import bytes_of
from h2o_chat.models.resolve import find as find_model

SHOWN_CHARACTERS = 200
"""Longest beginning of a fact in the answer to /remember and /forget."""

# Another conversation, another model


def new(surface: Surface, _: str) -> None:
    _begin(surface, None)


def system(surface: Surface, words: str) -> None:
    if words:
        return _begin(surface, words)
    prompt = surface.idle().system
    surface.say(f"The system prompt: {prompt}" if prompt else "There is no system prompt.")


def _begin(surface: Surface, system_prompt: str | None) -> None:
    chat = surface.idle()

    def work(*_: object) -> Iterator[Opened]:
        chat.clear(system_prompt)
        yield Opened(chat)

    surface.run(work, "beginning anew")


def open_stored(surface: Surface, words: str) -> None:
    chat = surface.idle()
    if chat.keeper is None:
        surface.remark("conversations are not stored here: there are none to open")
    elif words:
        open_conversation(surface, chat.keeper.store.find(words))
    else:
        surface.choose_conversation()


def open_conversation(surface: Surface, conversation: str) -> None:
    """Go on with a stored conversation; if it was held with another model, that is opened for it."""
    chat = surface.idle()
    assert chat.keeper is not None
    if conversation == chat.keeper.conversation:
        return surface.remark("this conversation is open already")
    if (name := model_of(chat.keeper.store, conversation, chat.session.model)) is not None:
        to_read = size(bytes_of(find_model(name).folder))
        surface.open_model(name, conversation)
        surface.remark(f"held with {name}: {to_read} are read first")
        return

    def work(cancel: ShouldStop, progress: ReadProgress) -> Iterator[Opened | Note]:
        if going_back.open_another(chat, conversation, progress, cancel):
            yield Opened(chat)
        else:
            yield Note("opening", "stopped: this conversation goes on")

    surface.run(work, "opening · esc stops")


def rename(surface: Surface, words: str) -> None:
    keeper = surface.idle().keeper
    if keeper is None or keeper.conversation is None:
        what = "Conversations are not stored here." if keeper is None else "Nothing was said yet."
        raise UsageError(f"{what} There is no title to change.")
    keeper.store.rename(keeper.conversation, words)
    surface.remark("renamed")


def model(surface: Surface, words: str) -> None:
    if words:
        surface.open_model(words)
    else:
        surface.choose_model()


# Settings


def setting(surface: Surface, words: str) -> None:
    """`NAME VALUE` changes a setting, `NAME` shows its value, nothing shows all of them."""
    name, _, value = words.partition(" ")
    name, value = name.replace("-", "_"), value.strip()
    if not name:
        surface.choose_setting()
        return
    if name not in settable.SETTABLE:
        settable.read(name, value)  # says why not
    told = settable.told(name, settable.values(surface.idle(), surface.sampling)[name])
    if not value:
        choices = settable.CHOICES.get(name)
        surface.say(f"{told}. One of: {', '.join(choices)}." if choices else told)
        return
    try:
        new = settable.read(name, value)
    except UsageError as error:
        raise UsageError(error.message, f"{error.hint} {told}") from error
    settable.apply(surface, {name: new})


def setting_named(name: str) -> Callable[[Surface, str], None]:
    return lambda surface, words: setting(surface, f"{name} {words}")


def budget(surface: Surface, words: str) -> None:
    """`TOKENS`, or `more`: enough for all that was said."""
    if words == "more":
        chat = surface.idle()
        session, seen = chat.session, chat.engine.seen
        if session.budget is None or seen <= session.budget:
            later = f" /budget {2 * session.budget} gives more for later." if session.budget else ""
            return surface.say(f"Nothing was forgotten yet: there is room.{later}")
        if session.budget >= session.window:
            return surface.say("The memory is already as large as the model's window.")
        words = str(remarks.more_room(session, seen))
    setting(surface, f"budget {words}")


# The memory


def stats(surface: Surface, _: str) -> None:
    memory = surface.memory
    if memory.session is None or memory.cache is None:
        raise UsageError("Nothing was seen yet.")
    cache, session = memory.cache, memory.session
    kinds = ", ".join(f"{cache.kinds.get(kind, 0):,} {memory.names[kind]}" for kind in "SHR")
    slots = "" if session.budget is None else f" of {session.budget:,} slots"
    fixed = f", {size(session.fixed_bytes)} of states of a fixed size" if session.fixed_bytes else ""
    full = f"a full cache would hold {size(cache.bytes_full)}"
    if cache.bytes > cache.bytes_full:
        full = f"all set aside at once; {full} so far"
    lines = [
        f"{session.model} · {session.policy} · {session.layers} layers x {session.kv_heads} KV heads",
        f"seen {cache.seen:,} tokens, kept {cache.kept:,}{slots}: {kinds}",
        f"{size(cache.bytes)} of keys and values{fixed}; {full}",
    ]
    if memory.evicted:
        lines.append(f"what was lately forgotten had received {percent(cache.lost)} of the attention")
    if memory.tok_s is not None:
        lines.append(f"{memory.tok_s:.1f} tokens a second")
    surface.say("\n".join(lines))


def memory(surface: Surface, _: str) -> None:
    surface.say("\n".join(in_words.in_lines(surface.memory)))


def why(surface: Surface, words: str) -> None:
    if not words and surface.selected is None:
        raise UsageError("Which word, or which message?", in_words.WHY)
    surface.say("\n".join(in_words.why(surface.memory, words or numbered(message_index(surface, "")))))


def recall(surface: Surface, words: str) -> None:
    chat = surface.idle()
    surface.note(chat.recall.by_hand(words, chat.messages, chat.session.budget))


def remember(surface: Surface, words: str) -> None:
    """Remember words, or the chosen message, for all conversations; without any list what is remembered."""
    keeper = surface.idle().keeper
    if keeper is None:
        raise UsageError("Conversations are not stored here, and nothing for all of them.")
    facts = keeper.store.facts
    if words:
        fact = facts.add(words)
    elif surface.selected is not None:
        fact = facts.add(surface.idle().messages[surface.selected].text, keeper.conversation)
    else:
        told = [f"{one.number}: {one.text}" for one in facts.all()]
        surface.say("\n".join(told) or "Nothing is remembered for all conversations: /remember TEXT")
        return
    surface.say(
        f"Remembered for all conversations: “{_beginning(fact.text)}” The first message of each has it,"
        f" later questions find it by its words. /forget {fact.number} takes it back."
    )


def forget(surface: Surface, words: str) -> None:
    keeper = surface.idle().keeper
    known = {str(one.number): one for one in keeper.store.facts.all()} if keeper else {}
    if keeper is None or words not in known:
        what = f"{words!r} is no number of something remembered." if words else "Forget which one?"
        raise UsageError(what, "/forget NUMBER; /remember shows them.")
    keeper.store.facts.remove(known[words].number)
    surface.say(f"No longer remembered: “{_beginning(known[words].text)}”")


def _beginning(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1].rstrip()}…"


def pin(surface: Surface, words: str) -> None:
    """Protect a message: the next, one by its number, or one that is said once more."""
    if words == "next" or (not words and surface.selected is None):
        surface.pin_next(not surface.pins_next or words == "next")
    elif words.split(" ")[0] == "again":
        _say_again(surface, words.removeprefix("again").strip())
    else:
        _pin(surface, message_index(surface, words), True)


def unpin(surface: Surface, words: str) -> None:
    if not words and surface.selected is None:
        if surface.pins_next:
            surface.pin_next(False)
            return
        pinned = [numbered(index) for index, one in enumerate(surface.idle().messages) if one.pinned]
        if not pinned:
            raise UsageError("No message is pinned.", "/pin NUMBER protects one.")
        if len(pinned) > 1:
            raise UsageError("Which message?", f"/unpin NUMBER; pinned are: {', '.join(pinned)}.")
        words = pinned[0]
    _pin(surface, message_index(surface, words), False)


def _say_again(surface: Surface, words: str) -> None:
    if not words and surface.selected is None:
        raise UsageError("Which message?", "/pin again NUMBER")
    index = message_index(surface, words)
    message = surface.idle().messages[index]
    if message.role != "user":
        raise UsageError(f"{numbered(index)} is not one of yours.", "Only what you said can be said again.")
    surface.pins_next = True
    surface.speak(message.text)


def _pin(surface: Surface, index: int, on: bool) -> None:
    chat = surface.idle()
    surface.run(lambda *_: pin_message(chat, index, on), "pinning", keeps_messages=True)


# The messages


def find(surface: Surface, words: str) -> None:
    if not words:
        raise UsageError("Find what?", "/find WORDS; /open looks through all stored conversations.")
    surface.find(words)


def export(surface: Surface, words: str) -> None:
    """Write the conversation as a file: `md|json [FILE] [--force]`."""
    chat = surface.idle()
    rest, _, last = words.rpartition(" ")
    force = last == "--force"  # a word of its own: `notes--force` is the name of a file
    kind, _, name = (rest if force else words).strip().partition(" ")
    if kind not in FORMATS:
        raise UsageError(f"{kind!r} is no format." if kind else "As what?", "/export md or json [FILE]")
    if chat.keeper and chat.keeper.conversation:
        chat.keeper.catch_up()
        conversation = chat.keeper.store.whole(chat.keeper.conversation)
    else:
        conversation = as_conversation(chat.messages, chat.session.model)
    try:
        path = Path(name.strip()).expanduser()
    except RuntimeError as error:  # ~nobody
        raise UsageError(f"There is no such folder: {error}") from error
    if os.path.isdir(path):  # Path.is_dir raises where it may not look
        path = path / file_name(conversation, kind)
    write_file(path, FORMATS[kind](conversation), force)
    surface.say(f"Wrote {path.name} in {path.parent.resolve()}")


def regenerate(surface: Surface, words: str) -> None:
    """Answer the last message in other words, at the temperature named or that of all answers."""
    chat = surface.idle()
    last = _last_to_go_back_to(surface, chat)
    if last is None:
        return
    sampling, text = surface.sampling, chat.messages[last].text
    if words:
        sampling = replace(sampling, temperature=settable.read("temperature", words))

    def work(cancel: ShouldStop, progress: ReadProgress) -> Iterator[Event]:
        return going_back.edit(chat, last, text, sampling, cancel, progress)

    surface.run(work, "going back · esc stops", edits=last)


def edit(surface: Surface, words: str) -> None:
    """Say something else instead of a message: by its number, the chosen one, or the last."""
    edit_message(surface, message_index(surface, words) if words else surface.selected)


def edit_message(surface: Surface, index: int | None) -> None:
    chat = surface.idle()
    last = _last_to_go_back_to(surface, chat)
    if last is None:
        return
    index = last if index is None else index
    if not 0 <= index < len(chat.messages) or chat.messages[index].role != "user":
        raise UsageError(f"{numbered(index)} is not one of yours.", "Only what you said can be said anew.")
    surface.begin_edit(index)


def branch(surface: Surface, words: str) -> None:
    """Go to the next branch at a message, or at the last one that has any; and back."""
    chat = surface.idle()
    index = message_index(surface, words) if words else surface.selected
    if _last_to_go_back_to(surface, chat) is None:
        return
    fork = going_back.next_fork(chat, index)
    if fork is None:
        surface.remark("nothing else was said here · /edit and /regenerate begin a branch")
        return

    def work(cancel: ShouldStop, progress: ReadProgress) -> Iterator[Opened]:
        if going_back.go_to_fork(chat, fork, progress, cancel):
            yield Opened(chat)

    surface.run(work, "going there · esc stops", fork=fork.index)


def _last_to_go_back_to(surface: Surface, chat: Chat) -> int | None:
    """Index of the last message of the user; None, after a remark, where there is no going back."""
    own = [index for index, message in enumerate(chat.messages) if message.role == "user"]
    if not own:
        surface.remark("nothing was said yet")
        return None
    if chat.keeper is None or chat.messages[own[-1]].id is None:
        surface.remark("this conversation is not stored: there is no going back")
        return None
    return own[-1]


def message_index(surface: Surface, words: str) -> int:
    """Index of the message with this number (`3`, `#3`), or of the chosen one; UsageError: there is none."""
    if not words:
        assert surface.selected is not None
        return surface.selected
    if not re.fullmatch(r"#?\d{1,9}", words):
        raise UsageError(f"{words!r} is no number of a message.", "It stands at its head: 3 or #3.")
    index, count = int(words.removeprefix("#")) - 1, len(surface.idle().messages)
    if not 0 <= index < count:
        raise no_such(index, count)
    return index
