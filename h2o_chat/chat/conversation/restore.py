"""From a stored transcript to the cache: by a saved cache where there is one, else by reading it all
again."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from h2o_chat.base.errors import BudgetError, SavedCacheError
from h2o_chat.base.progress import Seldom, ShouldStop, never, unheard
from h2o_chat.chat.conversation.exchange import turn_tokens
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.conversation.loops import loop_in, openings
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.conversation.spans import tokens_of, was_read
from h2o_chat.chat.templates.chat_template import Template, literal
from h2o_chat.engine.detokenize import texts
from h2o_chat.events.events import ASKS, Note, ReadProgress, ReadSoFar
from h2o_chat.models.tokenizer_calls import text_of
from h2o_chat.store import StoredMessage

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine

CHARACTERS = 4
"""Characters per token, roughly: an imported message has no tokens before it is read."""


def restore_cache(
    engine: "Engine",
    template: Template,
    keeper: Keeper,
    path: Sequence[StoredMessage],
    progress: ReadProgress,
    cancel: ShouldStop,
) -> bool:
    """Gives the engine the cache that it had after the messages of a path.

    The last saved cache on the path is loaded, and the messages since are fed token by token as they were
    then, so the cache is the same. Where none can be loaded all is read anew, in chunks, which is faster;
    then the cache may differ, and a note says so. Returns False if it was cancelled: nothing has changed.
    """
    before = engine.snapshot()
    try:
        engine.reset()
        known, wrong = _load_nearest(engine, keeper, path)
        pin_again(engine, keeper.notes, path)
        whole = read_again(engine, template, path, known, progress, cancel)
    except BaseException:
        engine.restore(before, hand_over=True)
        raise
    if wrong is not None:
        instead = "An older one was taken and what was said since read again: the memory is the same."
        keeper.notes.append(Note(wrong.code, wrong.message, instead if known and whole else ""))
    if not whole:
        engine.restore(before, hand_over=True)
    elif not known and engine.seen:
        text = "The memory was rebuilt from the transcript: it may differ from what it was."
        keeper.notes.append(Note("rebuilt", text))
    return whole


def pin_again(engine: "Engine", notes: list[Note], path: Sequence[StoredMessage]) -> None:
    """Pins the messages that are marked as pinned, whatever was pinned when the cache was saved.

    A message that has no room stays marked, and a note says so: a cache with more room will protect it.
    """
    if path and path[0].role == "system" and was_read(path[0]):
        engine.protect(len(tokens_of(path[0])))
    pinned = [message for message in path if message.pinned and was_read(message)]
    engine.unpin(keep=[at for message in pinned for at in tokens_of(message)])
    for index, message in enumerate(path):
        if message.pinned and was_read(message):
            try:
                engine.pin(tokens_of(message))
            except BudgetError as error:
                text = f"{numbered(index)} stays pinned, but is not protected now. {error.message}"
                notes.append(Note(error.code, text, f"{error.hint} Once it has room, it is protected again."))


def ended_in_marker(tokenizer: Any, template: Template, path: Sequence[StoredMessage]) -> bool:
    """Whether the last message ended in the marker that the next turn begins with (`base_templates.py`)."""
    if template.marker is None or not path or path[-1].finish != "stop":
        return False
    return template.marker in text_of(tokenizer, path[-1].ids[-16:])


def _load_nearest(
    engine: "Engine", keeper: Keeper, path: Sequence[StoredMessage]
) -> tuple[int, SavedCacheError | None]:
    """Loads the last usable saved cache; returns the messages that it covers, and why not the newest."""
    wrong = None
    for index in range(len(path) - 1, -1, -1):
        file = keeper.saved(path[index].id) if path[index].role == "assistant" else None
        if file is None or not file.exists():
            continue
        try:
            engine.load(file)
        except SavedCacheError as error:
            wrong = wrong or error
        else:
            return index + 1, wrong
    return 0, wrong


def read_again(
    engine: "Engine",
    template: Template,
    path: Sequence[StoredMessage],
    known: int = 0,
    progress: ReadProgress = unheard,
    cancel: ShouldStop = never,
) -> bool:
    """Feeds the messages after the first `known`: by the tokens they had, else by their text.

    Returns False if it was cancelled.
    """
    rest = path[known:]
    began, seldom, done = time.perf_counter(), Seldom(at_once=True), 0
    left = [
        0 if message.role == "system" else len(message.ids) or len(message.text) // CHARACTERS
        for message in rest
    ]
    to_come = sum(left)

    def tell(fed: int = 0) -> None:
        if seldom.due() or not to_come:
            ms = 1000 * (time.perf_counter() - began)
            progress(ReadSoFar(done + fed, max(done + fed, done + to_come), ms))

    system, read = path[0].text if path and path[0].role == "system" else None, True
    thinking = template.thinking
    for index, message in enumerate(rest, known):
        if message.role == "system":
            engine.protect(len(tokens_of(message)))
            continue
        ids: Sequence[int] = message.ids
        if message.role in ASKS:
            # The tokens of a turn that failed, or was cut off before it was read, are nowhere.
            read = not ids or was_read(message)
            if read and message.role == "user" and loop_in(path[:index], message.text, thinking):
                # It was done before this message, too.
                engine.evict_generated(openings(template, path[:index]))
            if not ids:
                marker_fed = ended_in_marker(engine.tokenizer, template, path[:index])
                ids, _ = turn_tokens(engine, template, system, message.text, marker_fed)
        elif not ids:
            ids = literal(engine.tokenizer, message.text)
        if read and message.finish != "error":
            answer, thought = message.role == "assistant", 0
            if answer and thinking.marks[1]:
                shown = frozenset(thinking.special)
                thought = thinking.tokens(texts(engine.tokenizer, ids, special=False, shown=shown))
            skips, first = thought if thinking.drops else 0, engine.seen + len(engine.pending)
            if ids and not engine.feed_again(
                ids, answer=answer, exact=known > 0, cancel=cancel, tick=tell, skips=skips
            ):
                return False
            done += len(ids)
            if thought:
                engine.give_up_thoughts([thinking.place(first, thought)], thinking.drops)
        to_come -= left[index - known]
        tell()
    return True
