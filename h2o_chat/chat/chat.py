"""A conversation: template -> engine -> store. The engine is injected, so nothing here imports torch."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import OutOfMemoryError, StoreError, UsageError
from h2o_chat.base.progress import never, unheard
from h2o_chat.chat import advice
from h2o_chat.chat.engine_like import EngineLike
from h2o_chat.chat.exchange import Exchange
from h2o_chat.chat.holds import Holds
from h2o_chat.chat.keeping import Keeper
from h2o_chat.chat.message import Message, as_conversation, as_event, not_too_long, of_stored, spell
from h2o_chat.chat.resume import build_anew, ended_in_marker, remember
from h2o_chat.chat.templates import choose
from h2o_chat.events.events import CacheState, Event, Note, Prompt, Said, Token, Turn
from h2o_chat.store import Conversation


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
        self.unkept = ""
        """Why it is not stored, where it should have been."""
        self.notes: list[Note] = keeper.notes if keeper else []
        """What a person should know; whoever shows it takes it away."""
        self.state: CacheState | None = None
        """What the cache held when last looked at."""
        self._settings = settings
        self._system = settings.system
        self._template = choose(engine.tokenizer, settings.template)
        self._holds = Holds()
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
            UsageError: nothing to say, too much, or the model's template does not take the system prompt.
            BudgetError: so many tokens cannot be protected; nothing was said.
            H2OChatError: whatever the engine raises; then the model has not seen this turn.
        """
        ids, system_tokens = self._tokens(not_too_long(text))
        end = self._engine.seen + len(self._engine.pending) + len(ids)
        place = range(end - len(ids) + system_tokens, end)
        if pin:
            self._engine.pin(place)
        exchange = Exchange(text, system_tokens, self.messages, self.keeper)
        exchange.write_down(ids)
        self.messages += [exchange.user, exchange.answer]
        stop, marker = sampling.stop, self._template.marker
        sampling = replace(sampling, stop=(*stop, marker) if marker else stop)
        try:
            yield Said(len(self.messages) - 2, "user", text)
            yield from self.take_notes()
            for event in self._engine.generate(ids, sampling, cancel):
                match event:
                    case Prompt():
                        event = replace(event, system=system_tokens)
                        exchange.read(event)
                        yield event
                        if pin:
                            yield self._pinned(exchange.user, True, len(place))
                        yield from self._too_small(event)
                        continue
                    case Token():
                        exchange.token(event)
                    case CacheState():
                        self._note(event)
                    case Turn():
                        exchange.ended(event)
                        if event.finish != "error":
                            if event.prompt_tokens:
                                self._marked = event.finish == "stop" and not stop
                            else:  # stopped before it was read: nothing was said
                                del self.messages[-2:]
                        event = replace(event, hold=self._holds.share_out(self.messages, event.seen))
                        exchange.close(event, self._engine)
                yield from self.take_notes()
                yield event
        except OutOfMemoryError as error:
            hint = advice.smaller(self.session, self._settings, self._engine)
            raise OutOfMemoryError(error.message, hint) from error
        finally:
            exchange.answer.text = exchange.text
            if pin and exchange.user.first < 0:  # it was not read
                self._engine.unpin(place)
                exchange.user.pinned = False

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
        """See `advice.too_small`; nothing where the cache keeps all."""
        if self.session.budget is not None:
            protected, _ = self._engine.protection()
            fits = self._engine.budget_for(prompt.system) if prompt.system > protected else None
            yield from advice.too_small(prompt, self.session.budget, protected, fits)

    @property
    def system(self) -> str | None:
        """The system prompt of the conversation, which may be another than that of the settings."""
        return self._system

    @property
    def settings(self) -> Settings:
        """What the conversation is held with."""
        return self._settings

    def reseed(self, seed: int) -> None:
        """Draws from here on as with this seed."""
        self._engine.reseed(seed)
        self._settings = replace(self._settings, seed=seed)
        self.session = replace(self.session, seed=seed)

    def check(self, settings: Settings) -> None:
        """Lets settings through with which the memory can be built again.

        Raises:
            BudgetError: the budget cannot work.
            StoreError: the conversation is not stored: there is nothing to read.
        """
        self._engine.check(settings)
        if self.messages != self._blank() and (self.keeper is None or self.keeper.leaf is None):
            raise StoreError(
                "This conversation is not stored: there is nothing to build another memory from.",
                "Begin a new one, then change it.",
            )

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
        self.check(settings)
        engine, notes = self._engine.remade(settings), list[Note]()
        if self.keeper and self.keeper.leaf is not None and self.messages != self._blank():
            path = self.keeper.path(self.keeper.leaf)
            if not build_anew(engine, self._template, notes, path, progress, cancel):
                return False
        self._engine, self._settings = engine, settings
        self.session = replace(engine.session, template=self.template_name)
        if self.keeper:
            self.keeper.changed(engine.session, asdict(settings))
            self.keeper.save_again(engine)
        self.notes += notes
        self._holds.forget()
        self.state = None
        if engine.seen:
            self._note(engine.look())
            self._holds.share_out(self.messages, engine.seen)
        return True

    def close(self) -> None:
        """The conversation is left: nothing more is said in it here."""
        if self.keeper:
            self.keeper.close()
        self._engine.close()

    def whole(self) -> Conversation:
        """All of it, for a file; of one that is not stored, what is on the screen.

        Raises:
            StoreError: it cannot be read.
        """
        if self.keeper and self.keeper.conversation:
            self.keeper.catch_up()
            return self.keeper.store.whole(self.keeper.conversation)
        return as_conversation(self.messages, self.session.model)

    def heat(self) -> dict[int, list[tuple[str, float]]]:
        """By message number in the store: its tokens as they read, each with its hold now.

        Only of what is stored: the tokens are there.

        Raises:
            StoreError: it cannot be read.
        """
        path = self.keeper.path(self.keeper.leaf) if self.keeper else []
        told = {message.id: self._holds.by_token(message, self._engine.tokenizer) for message in path}
        return {message: tokens for message, tokens in told.items() if tokens}

    def _pinned(self, message: Message, on: bool, held: int) -> Note:
        """Notes it, and tells what it costs."""
        message.pinned = on
        if self.keeper:
            self.keeper.pinned(message.id, on)
        number, said = self.messages.index(message), message.last - message.first + 1
        return advice.pinned(number, on, said, held, *self._engine.protection())

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
        left.leave()
        self.keeper = left.other(conversation)
        try:
            opened = self.resume(progress, cancel)
        finally:
            gone = left if opened else self.keeper
            self.keeper = self.keeper if opened else left
            gone.close()
        self.notes = self.keeper.notes
        return opened

    def resume(
        self,
        progress: Callable[[float], None],
        cancel: Callable[[], bool] = never,
        leaf: int | None = None,
    ) -> bool:
        """Goes on with the stored conversation of the keeper, where it ended or at `leaf`; see `go_to`."""
        assert self.keeper is not None
        if not self.go_to(self.keeper.leaf if leaf is None else leaf, progress, cancel):
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
        self._holds.forget()
        self.messages = [of_stored(stored) for stored in path] or self._blank()
        if path:
            self._system = path[0].text if path[0].role == "system" else None
        self._marked = bool(path) and ended_in_marker(self._engine.tokenizer, self._template, path[-1])
        self._note(self._engine.look())
        self._holds.share_out(self.messages, self._engine.seen)
        return True

    def opening(self) -> Iterator[Event]:
        """What somebody must know who reads the events from here on: what was said, what is remembered."""
        yield self.session
        yield from self._told(0)

    def _told(self, start: int) -> Iterator[Event]:
        for index, message in enumerate(self.messages[start:], start):
            yield as_event(index, message)
        yield from self._looked()

    def _spell(self) -> None:
        """Gives the messages of a stored conversation the texts of their tokens; if anybody wants to know."""
        if self.keeper and self._settings.events_every:
            stored = {one.id: one.ids for one in self.keeper.path(self.keeper.leaf)}
            spell(self.messages, stored, self._engine.tokenizer)

    def _looked(self) -> Iterator[Event]:
        """What the cache holds, after the memory was brought back; if anybody wants to know."""
        if self.state is not None and self._settings.events_every:
            yield self.state

    def take_notes(self) -> Iterator[Note]:
        while self.notes:
            yield self.notes.pop(0)

    def clear(self, system: str | None = None) -> None:
        """Starts over: the model and the screen forget everything; on disk a new conversation begins.

        Args:
            system: another system prompt from here on; None keeps that of the settings.

        Raises:
            StoreError: not all that was said is on disk yet; nothing has changed.
        """
        if self.keeper:
            self.keeper.begin_anew()
        if system is not None:
            self._settings = replace(self._settings, system=system or None)
        self._engine.reset()
        self._holds.forget()
        self.state = None
        self._marked = False
        self._system = self._settings.system
        self.messages = self._blank()

    def inspect(self, position: int) -> list[list[bool]]:
        """Which caches hold the token at a position: [layers][KV heads]."""
        return self._engine.inspect(position)

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

    def _note(self, state: CacheState) -> None:
        self.state = state
        self._holds.take(state)
