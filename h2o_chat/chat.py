"""A conversation: template -> engine -> store. The engine is injected, so nothing here imports torch."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

from h2o_chat.config import Sampling, Settings
from h2o_chat.detokenize import MOST_TEXTS, Detokenizer, texts
from h2o_chat.errors import StoreError, UsageError
from h2o_chat.events import CacheState, Event, Finish, Note, Prompt, Role, Said, Session, Token, Turn
from h2o_chat.keeping import Keeper
from h2o_chat.resume import build_anew, ended_in_marker, remember
from h2o_chat.store import Conversation, StoredMessage, title_of
from h2o_chat.templates import choose


def never() -> bool:
    """Nobody cancels."""
    return False


def unheard(share: float) -> None:
    """Nobody asks how far it is."""


class EngineLike(Protocol):
    """What a conversation needs of an engine; see `engine.Engine`."""

    session: Session
    tokenizer: Any
    eos: frozenset[int]
    pending: tuple[int, ...]

    @property
    def seen(self) -> int: ...
    def generate(
        self, ids: Sequence[int], sampling: Sampling, cancel: Callable[[], bool] = never
    ) -> Iterator[Event]: ...
    def relive(
        self, ids: Sequence[int], *, answer: bool, exact: bool, cancel: Callable[[], bool]
    ) -> bool: ...
    def look(self) -> CacheState: ...
    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...
    def snapshot(self) -> Any: ...
    def restore(self, snapshot: Any, *, hand_over: bool = False) -> None: ...
    def protect(self, tokens: int) -> int: ...
    def pin(self, positions: range) -> int: ...
    def unpin(self, positions: range | None = None) -> None: ...
    def protection(self) -> tuple[int, int | None]: ...
    def budget_for(self, protected: int) -> int | None: ...
    def remade(self, settings: Settings) -> "EngineLike": ...
    def reseed(self, seed: int) -> None: ...
    def inspect(self, position: int) -> list[list[bool]]: ...
    def text_of(self, position: int) -> str: ...
    def reset(self) -> None: ...
    def watch(self, on: bool) -> None: ...


@dataclass
class Message:
    """What one side said, and where its tokens lie."""

    role: str
    """system | user | assistant"""
    text: str
    first: int = -1
    """Position of its first token; -1 while none was fed."""
    last: int = -1
    finish: str | None = None
    """How an answer ended; None while it streams."""
    hold: float = 1.0
    """Mean hold of its tokens when last looked at."""
    id: int | None = None
    """Its number in the store; None where it is not stored."""
    pinned: bool = False
    """Its tokens are protected from eviction, as far as they were still held."""
    texts: list[str] = field(default_factory=list)
    """The text of each of its tokens, where it was said before somebody looked."""


class Chat:
    """A conversation with one model.

    Args:
        engine: fresh, or reset.
        settings: the system prompt and the template are taken from here.
        keeper: writes it to disk; None keeps nothing.
    """

    def __init__(self, engine: EngineLike, settings: Settings, keeper: Keeper | None = None) -> None:
        self._engine = engine
        self.keeper = keeper
        self.notes: list[Note] = keeper.notes if keeper else []
        """What a person should know; whoever shows it takes it away."""
        self.state: CacheState | None = None
        """What the cache held when last looked at."""
        self._settings = settings
        self._system = settings.system
        self._template = choose(engine.tokenizer, settings.template)
        self._held: dict[int, float] = {}
        """Hold by position, of the tokens of which something is left: as many as the cache has slots."""
        self._marked = False
        """The last answer ended in the marker that the next turn begins with: it was fed already."""
        self.template_name = self._template.name
        self.session = replace(engine.session, template=self.template_name)
        self.messages: list[Message] = self._blank()

    def send(
        self, text: str, sampling: Sampling, cancel: Callable[[], bool] = never, *, pin: bool = False
    ) -> Iterator[Event]:
        """Says something and streams the answer: `Said`, then the events of the engine, `Turn` with what
        messages hold.

        The answer's text is in `messages` when its turn has ended. A message whose reading was stopped was
        never said: it is not kept.

        Args:
            pin: protect all its tokens, as they are fed.

        Raises:
            UsageError: nothing to say, or the model's template does not take the system prompt.
            BudgetError: so many tokens cannot be protected; nothing was said.
            H2OChatError: whatever the engine raises; then the model has not seen this turn.
        """
        ids, system_tokens = self._tokens(text)
        user, answer = Message("user", text), Message("assistant", "")
        end = self._engine.seen + len(self._engine.pending) + len(ids)
        place = range(end - len(ids) + system_tokens, end)
        if pin:
            self._engine.pin(place)
        if self.keeper:
            self._write_down(user, answer, ids)
        self.messages += [user, answer]
        stop, marker = sampling.stop, self._template.marker
        sampling = replace(sampling, stop=(*stop, marker) if marker else stop)
        pieces: list[str] = []  # joined once: a string that grows by a token costs its whole length
        try:
            yield Said(len(self.messages) - 2, "user", text)
            yield from self.take_notes()
            for event in self._engine.generate(ids, sampling, cancel):
                match event:
                    case Prompt():
                        event = replace(event, system=system_tokens)
                        self._place(event, user, answer)
                        yield event
                        if pin:
                            yield self._pinned(user, True, len(place))
                        yield from self._too_small(event)
                        continue
                    case Token():
                        if self.keeper:
                            self.keeper.token(event.id, event.text)
                        pieces.append(event.text)
                        answer.first = event.position if answer.first < 0 else answer.first
                        answer.last = event.position
                    case CacheState():
                        self._note(event)
                    case Turn():
                        pieces, answer.finish = [event.text], event.finish
                        if event.finish == "error":
                            self._unplace(user, answer, *self.messages[: 1 if system_tokens else 0])
                        elif not event.prompt_tokens:  # stopped before it was read: nothing was said
                            del self.messages[-2:]
                        else:
                            self._marked = event.finish == "stop" and not stop
                        event = replace(event, hold=self._message_hold(event.seen))
                        if self.keeper:
                            self._close(user, answer, event)
                            yield from self.take_notes()
                yield event
        finally:
            answer.text = "".join(pieces)
            if pin and user.first < 0:  # it was not read
                self._engine.unpin(place)
                user.pinned = False

    def regenerate(
        self,
        sampling: Sampling,
        cancel: Callable[[], bool] = never,
        progress: Callable[[float], None] = unheard,
    ) -> Iterator[Event]:
        """Answers the last message again, from the memory as it was before; the first answer is kept beside.

        Args and events: see `edit`.

        Raises:
            UsageError: nothing was said yet.
            StoreError: the conversation is not stored.
        """
        asked = [index for index, message in enumerate(self.messages) if message.role == "user"]
        if not asked:
            raise UsageError("There is no answer to make again: nothing was said.")
        yield from self.edit(asked[-1], self.messages[asked[-1]].text, sampling, cancel, progress)

    def edit(
        self,
        index: int,
        text: str,
        sampling: Sampling,
        cancel: Callable[[], bool] = never,
        progress: Callable[[float], None] = unheard,
    ) -> Iterator[Event]:
        """Says something else instead of message `index`; what followed it is kept as another branch.

        No event comes until the memory has been brought back, none at all if that was cancelled: then nothing
        has changed.

        Args:
            progress: told the share of what had to be read again, 0 to 1.

        Raises:
            UsageError: it is not a message of the user.
            StoreError: the conversation is not stored.
        """
        if not 0 <= index < len(self.messages) or self.messages[index].role != "user":
            raise UsageError(f"Message {index} is not one of yours.", "Only what you said can be said anew.")
        before = self.messages[index - 1].id if index else None
        if self.keeper is None or self.messages[index].id is None:
            raise StoreError("This conversation is not stored: there is nothing to go back to.")
        leaf, pinned = self.keeper.leaf, self.messages[index].pinned
        if not self.go_to(before, progress, cancel):
            return
        yield from self._looked()
        yield from self.send(text, sampling, cancel, pin=pinned)
        if len(self.messages) <= index:  # stopped before it was read: nothing was said instead
            self.go_to(leaf, progress)
            yield from self.take_notes()
            self._spell()
            yield from self._told(index)

    def pin(self, index: int, on: bool = True) -> Iterator[Event]:
        """Protects what is still held of message `index` from eviction, or lets it go: `CacheState`, `Note`.

        Raises:
            UsageError: there is no such message, or it was not read.
            BudgetError: so many tokens cannot be protected; nothing has changed.
        """
        if not 0 <= index < len(self.messages):
            raise UsageError(f"There is no message {index}.", f"They are 0 to {len(self.messages) - 1}.")
        message = self.messages[index]
        if message.first < 0 or message.last < message.first:
            raise UsageError(f"Message {index} was not read: there is nothing of it to hold.")
        place = range(message.first, message.last + 1)
        tokens = len(place)
        if on:
            tokens = self._engine.pin(place)
        else:
            self._engine.unpin(place)
        note = self._pinned(message, on, tokens)
        if self.keeper:
            self.keeper.save_again(self._engine)
        self._note(self._engine.look())
        yield from self._looked()
        yield note
        yield from self.take_notes()

    def _too_small(self, prompt: Prompt) -> Iterator[Note]:
        """What of a prompt that was just read the budget cannot hold, and what would."""
        budget = self.session.budget
        if budget is None:
            return
        protected, _ = self._engine.protection()
        if prompt.system > protected:
            fits = self._engine.budget_for(prompt.system)
            yield Note(
                "small-budget",
                f"The system prompt has {prompt.system:,} tokens. The first {protected:,} are protected, the"
                " others can be forgotten.",
                f"A budget of {fits:,} would protect it all." if fits else "",
            )
        if prompt.tokens > budget:
            yield Note(
                "small-budget",
                f"{prompt.tokens:,} tokens were read at once, and each cache keeps {budget:,}: part of it is"
                " forgotten already.",
                f"A budget of {prompt.tokens + budget // 2:,} would hold it.",
            )

    @property
    def settings(self) -> Settings:
        """What the conversation is held with."""
        return self._settings

    def reseed(self, seed: int) -> None:
        """Draws from here on as with this seed."""
        self._engine.reseed(seed)
        self._settings = replace(self._settings, seed=seed)
        self.session = replace(self.session, seed=seed)

    def rebuild(
        self,
        settings: Settings,
        progress: Callable[[float], None] = unheard,
        cancel: Callable[[], bool] = never,
    ) -> bool:
        """Another memory (budget, policy, ...) from here on, built by reading the conversation again.

        Returns:
            False if it was cancelled: then nothing has changed. So it is if anything is raised.

        Raises:
            BudgetError: the budget cannot work.
            StoreError: the conversation is not stored: there is nothing to read.
        """
        engine, notes = self._engine.remade(settings), list[Note]()
        if self.messages != self._blank():
            if self.keeper is None or self.keeper.leaf is None:
                raise StoreError(
                    "This conversation is not stored: there is nothing to build another memory from.",
                    "Begin a new one, then change it.",
                )
            path = self.keeper.path(self.keeper.leaf)
            if not build_anew(engine, self._template, notes, path, progress, cancel):
                return False
        self._engine, self._settings = engine, settings
        self.session = replace(engine.session, template=self.template_name)
        if self.keeper:
            self.keeper.changed(engine.session, asdict(settings))
            self.keeper.save_again(engine)
        self.notes += notes
        self._held.clear()
        self.state = None
        if engine.seen:
            self._note(engine.look())
            self._message_hold(engine.seen)
        return True

    def whole(self) -> Conversation:
        """All of it, for a file; of one that is not stored, what is on the screen.

        Raises:
            StoreError: it cannot be read.
        """
        if self.keeper and self.keeper.conversation:
            return self.keeper.store.whole(self.keeper.conversation)
        messages = [
            StoredMessage(
                number, number - 1 if number else None, one.role, one.text, one.finish, -1, -1, (), 0.0
            )
            for number, one in enumerate(self.messages)
        ]
        now, leaf = time.time(), len(messages) - 1 if messages else None
        asked = next((one.text for one in self.messages if one.role == "user"), "")
        return Conversation("", title_of(asked), self.session.model, {}, now, now, leaf, messages)

    def heat(self) -> dict[int, list[tuple[str, float]]]:
        """By message number in the store: its tokens as they read, each with its hold now.

        A character made of several tokens has the largest. Only of what is stored: the tokens are there.

        Raises:
            StoreError: it cannot be read.
        """
        found: dict[int, list[tuple[str, float]]] = {}
        for message in self.keeper.path(self.keeper.leaf) if self.keeper else ():
            fed = message.last - message.first + 1
            if message.first < 0 or not 0 < fed <= len(message.ids):
                continue
            skipped = len(message.ids) - fed if message.role == "user" else 0  # those of a system prompt
            text = Detokenizer(self._engine.tokenizer, list(message.ids[:skipped]))
            pieces, hold = [], 0.0
            for place, token in enumerate(message.ids[skipped : skipped + fed], message.first):
                hold = max(hold, self._held.get(place, 0.0))
                if piece := text.add(token):
                    pieces.append((piece, hold))
                    hold = 0.0
            if piece := text.flush():
                pieces.append((piece, hold))
            found[message.id] = pieces
        return found

    def _pinned(self, message: Message, on: bool, tokens: int) -> Note:
        """Notes it, and tells what it costs."""
        message.pinned = on
        if self.keeper:
            self.keeper.pinned(message.id, on)
        slots, left = self._engine.protection()
        of, number = message.last - message.first + 1, self.messages.index(message)
        what = f"{tokens} tokens stay" if tokens == of else f"{tokens} of its {of} tokens are left and stay"
        said = f"is pinned: {what}." if on else "is no longer pinned."
        room = "" if left is None else f", {left:,} are left for heavy hitters"
        return Note(
            "pinned" if on else "unpinned", f"Message {number} {said} {slots:,} slots protected{room}."
        )

    def open(
        self,
        conversation: str,
        progress: Callable[[float], None] = unheard,
        cancel: Callable[[], bool] = never,
    ) -> bool:
        """Goes on with another stored conversation, where it ended; this one is let go.

        Returns:
            False if it was cancelled: then nothing has changed. So it is if anything is raised.

        Raises:
            StoreError: it cannot be read (`BusyError`: it is open elsewhere), or nothing is stored here.
            UsageError: there is no such conversation, or it was held with another model.
        """
        if self.keeper is None:
            raise StoreError("Conversations are not stored here: there is none to open.")
        left, opened = self.keeper, False
        self.keeper = left.other(conversation)
        try:
            opened = self.resume(progress, cancel)
        finally:
            gone = left if opened else self.keeper
            self.keeper = self.keeper if opened else left
            gone.close()
        self.notes = self.keeper.notes
        return opened

    def resume(self, progress: Callable[[float], None], cancel: Callable[[], bool] = never) -> bool:
        """Goes on with the stored conversation of the keeper, where it ended; see `go_to`."""
        assert self.keeper is not None
        if not self.go_to(self.keeper.leaf, progress, cancel):
            return False
        self._spell()
        return True

    def go_to(
        self,
        leaf: int | None,
        progress: Callable[[float], None] = unheard,
        cancel: Callable[[], bool] = never,
    ) -> bool:
        """Makes a stored message the last one (None: the beginning), with the memory as it was after it.

        Args:
            progress: told the share that was read again, 0 to 1.

        Returns:
            False if it was cancelled: then nothing has changed.

        Raises:
            StoreError: the conversation cannot be read.
        """
        assert self.keeper is not None
        path = self.keeper.path(leaf)
        if not remember(self._engine, self._template, self.keeper, path, progress, cancel):
            return False
        self.keeper.move(leaf)
        self._held.clear()
        self.messages = [_message(stored) for stored in path] or self._blank()
        if path:
            self._system = path[0].text if path[0].role == "system" else None
        self._marked = bool(path) and ended_in_marker(self._engine.tokenizer, self._template, path[-1])
        self._note(self._engine.look())
        self._message_hold(self._engine.seen)
        return True

    def opening(self) -> Iterator[Event]:
        """What somebody must know who reads the events from here on: what was said, what is remembered."""
        yield self.session
        yield from self._told(0)

    def _told(self, start: int) -> Iterator[Event]:
        for index, message in enumerate(self.messages[start:], start):
            role, finish = cast(Role, message.role), cast(Finish | None, message.finish)
            hold = message.hold if message.first >= 0 else None
            place = (message.first, message.last, message.texts)
            yield Said(index, role, message.text, finish, hold, *place)
        yield from self._looked()

    def _spell(self) -> None:
        """Gives the newest messages of a stored conversation the texts of their tokens."""
        if self.keeper is None or not self._settings.events_every:
            return
        stored = {one.id: one.ids for one in self.keeper.path(self.keeper.leaf)}
        left = MOST_TEXTS
        for message in reversed(self.messages):
            ids = stored.get(message.id or -1, ())
            left -= len(ids)
            if message.first < 0 or not ids or left < 0:
                continue
            # What was said with an answer's end, and the system prompt, were fed in front of a message.
            own = min(message.last - message.first + 1, len(ids))
            answer = message.role == "assistant"
            spelt = texts(self._engine.tokenizer, ids, special=not answer)
            message.texts = spelt[:own] if answer else spelt[-own:]
            system = self.messages[0]
            if not answer and system.role == "system" and system.last == message.first - 1:
                system.texts = spelt[: len(spelt) - own][-(system.last - system.first + 1) :]

    def _looked(self) -> Iterator[Event]:
        """What the cache holds, after the memory was brought back; if anybody wants to know."""
        if self.state is not None and self._settings.events_every:
            yield self.state

    def _write_down(self, user: Message, answer: Message, ids: list[int]) -> None:
        """What a person typed is on disk before the model sees it."""
        assert self.keeper is not None
        for message in self.messages:  # the system prompt, once
            if message.id is None and message.role == "system":
                message.id = self.keeper.said(message.role, message.text)
        user.id = self.keeper.said("user", user.text, ids)
        answer.id = self.keeper.answering()

    def _close(self, user: Message, answer: Message, turn: Turn) -> None:
        """The turn has ended: so has what is on disk of it, and the memory is saved."""
        assert self.keeper is not None
        if turn.finish == "error":
            self.keeper.placed(user.id, -1, -1)
        if not turn.prompt_tokens and turn.finish == "stopped":
            self.keeper.withdraw([user.id, answer.id])
            return
        self.keeper.finished(turn.text, turn.finish, answer.first, answer.last)
        if turn.finish != "error":
            self.keeper.save(self._engine, answer.id)

    def take_notes(self) -> Iterator[Note]:
        while self.notes:
            yield self.notes.pop(0)

    def clear(self, system: str | None = None) -> None:
        """Starts over: the model and the screen forget everything; on disk a new conversation begins.

        Args:
            system: another system prompt from here on; None keeps that of the settings.
        """
        if system is not None:
            self._settings = replace(self._settings, system=system or None)
        self._engine.reset()
        if self.keeper:
            self.keeper.begin_anew()
        self._held.clear()
        self.state = None
        self._marked = False
        self._system = self._settings.system
        self.messages = self._blank()

    def inspect(self, position: int) -> list[list[bool]]:
        """Which caches hold the token at a position: [layers][KV heads]."""
        return self._engine.inspect(position)

    def text_of(self, position: int) -> str:
        """Text of a token that is still held."""
        return self._engine.text_of(position)

    def watch(self, on: bool) -> None:
        """Whether somebody looks at what only a memory panel shows; else it is not collected."""
        self._engine.watch(on)

    def _tokens(self, text: str) -> tuple[list[int], int]:
        """The tokens of a turn, and how many of them are the system prompt."""
        pending = self._engine.pending
        if not self._engine.seen and not pending:
            fed = self._template.first(self._system, text)
            system_tokens = fed.head if self._system else 0
            self._engine.protect(system_tokens)
            return fed.ids, system_tokens
        fed = self._template.later(text, self._marked)
        if pending and pending[-1] in self._engine.eos and pending[-1] in fed.ids[: fed.head]:
            # The model has closed its answer itself: the template's own closing would say so twice.
            return fed.ids[fed.ids.index(pending[-1]) + 1 :], 0
        return fed.ids, 0

    def _blank(self) -> list[Message]:
        """The messages of a conversation in which nobody has spoken."""
        return [Message("system", self._system)] if self._system else []

    def _place(self, prompt: Prompt, user: Message, answer: Message) -> None:
        """Gives messages their positions, once the prompt was read (or part of it)."""
        before = next((m.last for m in reversed(self.messages) if m.first >= 0), -1)
        first = max(prompt.first, before + 1)
        if prompt.system:
            system = self.messages[0]
            system.first, system.last = first, min(first + prompt.system - 1, prompt.last)
            first += prompt.system
        if first <= prompt.last:
            user.first, user.last = first, prompt.last
        if self.keeper:
            for message in (*self.messages[:1], user):
                if message.first >= 0 and message.role != "assistant":
                    self.keeper.placed(message.id, message.first, message.last)
            self.keeper.placed(answer.id, prompt.last + 1, -1)  # its end is known when it has one

    def _unplace(self, *messages: Message) -> None:
        """The turn failed and the engine went back: its tokens are nowhere."""
        for message in messages:
            message.first = message.last = -1

    def _note(self, state: CacheState) -> None:
        self.state = state
        if state.whole:
            self._held.clear()
        for position, hold, _ in state.changed:
            if hold > 0:
                self._held[position] = hold
            else:
                self._held.pop(position, None)

    def _message_hold(self, seen: int) -> list[tuple[int, float]]:
        """(index, mean hold of its tokens) of the messages of which something is left."""
        placed = [index for index, message in enumerate(self.messages) if message.first >= 0]
        firsts = [self.messages[index].first for index in placed]
        total: dict[int, float] = {}
        for position, hold in self._held.items():
            at = bisect_right(firsts, position) - 1
            if at >= 0:
                total[placed[at]] = total.get(placed[at], 0.0) + hold
        for index in placed:
            message = self.messages[index]
            fed = min(message.last + 1, seen) - message.first  # the last token of an answer waits
            message.hold = total.get(index, 0.0) / fed if fed > 0 else 1.0
        return [(index, self.messages[index].hold) for index in sorted(total)]


def _message(stored: StoredMessage) -> Message:
    return Message(
        stored.role,
        stored.text,
        stored.first,
        stored.last,
        stored.finish,
        id=stored.id,
        pinned=stored.pinned,
    )
