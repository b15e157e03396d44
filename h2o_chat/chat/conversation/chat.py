"""A conversation: template -> engine -> store. The engine is handed in, so nothing here imports torch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from h2o_chat.base.config import SCREEN_TOKENS, Sampling, Settings
from h2o_chat.base.errors import OutOfMemoryError, UsageError
from h2o_chat.base.progress import ShouldStop, never, unheard
from h2o_chat.chat.conversation import loops, remarks
from h2o_chat.chat.conversation.exchange import Exchange, pin_before, turn_tokens
from h2o_chat.chat.conversation.keeper import Keeper, mark_branches
from h2o_chat.chat.conversation.message import (
    Holds,
    Message,
    Recalled,
    from_stored,
    give_texts,
    no_such,
    not_too_long,
    numbered,
    to_event,
)
from h2o_chat.chat.conversation.restore import ended_in_marker, restore_cache
from h2o_chat.chat.conversation.spans import coming_span, tokens_of, was_read
from h2o_chat.chat.recall.elsewhere import Elsewhere
from h2o_chat.chat.recall.index import rarity_of
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.chat.templates.chat_template import choose, literal
from h2o_chat.chat.tools.tool_calls import ToolCalls
from h2o_chat.events.events import CacheState, Event, Note, Prompt, ReadProgress, Session, Token, Turn
from h2o_chat.models.makers import Makers

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine


class Chat:
    """A conversation with one model.

    Args:
        engine: fresh, or reset; for the screen one in another process (`remote/engine_apart.py`).
        settings: the system prompt and the template are taken from here.
        keeper: writes it to disk; None keeps nothing.
    """

    def __init__(self, engine: "Engine", settings: Settings, keeper: Keeper | None = None) -> None:
        self.engine = engine
        self.makers = Makers()  # the makers of the model recommend a sampling
        self.keeper = keeper
        self.unkept = ""
        """Why it is not stored although it should have been."""
        self.notes: list[Note] = keeper.notes if keeper else []
        self.breaks_loops = True
        """Loops are broken; the lab measures with and without."""
        self.state: CacheState | None = None
        self.settings = settings
        self.tools: ToolCalls | None = None  # see tool_rounds.py
        self.system = settings.system
        """The system prompt of the conversation; it may differ from that of the settings."""
        self.template = choose(engine.tokenizer, settings.template, settings.think)
        self.holds = Holds()
        self.recall = Recall(
            lambda text: len(literal(engine.tokenizer, text)),
            lambda answer: self.template.thinking.divide(answer)[1],
            lambda text: rarity_of(literal(engine.tokenizer, text)),
        )
        self.recall.elsewhere = Elsewhere(keeper, self.recall.rarity) if keeper else None
        self.longest_read = 0, 0.0
        """(tokens, ms) of the longest prompt that was read; it may have been in another conversation."""
        self._turn_marker_fed = False
        """The last answer ended in the marker that the next turn begins with: that marker was fed already."""
        self.session = self.session_now()
        self.messages: list[Message] = self._blank()

    def send(
        self,
        text: str,
        sampling: Sampling,
        cancel: ShouldStop = never,
        *,
        pin: bool = False,
        avoid: Sequence[str] = (),
        role: str = "user",
    ) -> Iterator[Event]:
        """Says something and streams the answer: `Said`, the engine's events, `Turn` with what is held.

        The answer's text is in `messages` when its turn has ended. A message whose reading was stopped counts
        as never said, and is not kept.

        Args:
            pin: protect all its tokens, as they are fed.
            avoid: answers given to it before: this one begins with another word.
            role: user, or tool: the text has results of tools.

        Raises:
            UsageError: nothing to say, too much, or the model's template does not take the system prompt.
            BudgetError: so many tokens cannot be protected; nothing was said.
            H2OChatError: whatever the engine raises; then the model has not seen this turn.
        """
        not_too_long(text)
        if (thinking := self.template.thinking).marks[1] and role == "user":
            self.engine.expect_thoughts(thinking.special, thinking.drops)
        fed, recalled, budget, notes = text, tuple[Recalled, ...](), self.session.budget, list[Note]()
        if role == "user":
            before = self.messages, self.engine, self.settings, budget
            recalled, fed, notes = self.recall.for_message(text, *before)
        model = self.engine, self.template
        ids, system_tokens = turn_tokens(*model, self.system, fed, self._turn_marker_fed, self.tools, role)
        seen, pending = self.engine.seen, len(self.engine.pending)
        place = coming_span(seen + pending, len(ids), system_tokens)
        if pin:
            pin_before(self.engine, place, recalled)
        self.notes += notes
        others, most = loops.tokenized(self.engine.tokenizer, self.engine.eos, avoid, 0), sampling.max_tokens
        if self.breaks_loops and role == "user":
            barred = loops.break_loop(*model, self.messages, text, self.notes, bool(recalled))
            most = loops.MOST_TOKENS if barred and most == SCREEN_TOKENS else most
            others += barred
        exchange = Exchange(text, system_tokens, self.messages, self.keeper, recalled, role)
        self.messages += [exchange.user, exchange.answer]
        exchange.write_down(ids)
        stop = sampling.stop
        sampling = replace(sampling, stop=(*stop, *filter(None, (self.template.marker,))))
        try:
            yield to_event(len(self.messages) - 2, exchange.user)
            yield from self.take_notes()
            yield from remarks.longer_than(pending + len(ids), self.session, seen, self.longest_read)
            stops = exchange.stops(sampling, cancel) if self.breaks_loops else cancel
            for event in self.engine.generate(ids, replace(sampling, max_tokens=most), stops, others):
                match event:
                    case Prompt():
                        self.recall.was_fed()
                        self.longest_read = max(self.longest_read, (event.tokens, event.ms))
                        event = replace(event, system=system_tokens)
                        exchange.read(event)
                        yield event
                        if pin:
                            yield self.mark_pinned(exchange.user, True, len(place))
                        yield from remarks.too_small(self.engine, event)
                        continue
                    case Token():
                        exchange.token(event)
                    case CacheState():
                        self._remember_state(event)
                    case Turn():
                        exchange.ended(event, self.template.thinking)
                        yield from self._give_up_thoughts(event)
                        if event.finish != "error" and event.prompt_tokens:
                            self._turn_marker_fed = event.finish == "stop" and not stop
                        elif event.finish != "error":  # stopped before it was read: nothing was said
                            del self.messages[-2:]
                        event = replace(event, hold=self.holds.share_out(self.messages, event.seen))
                        exchange.close(event, self.engine)
                        self.notes += remarks.at_limit(event, sampling, most, exchange.repeating, thinking)
                        self.notes += self.recall.closest(event.text, recalled)
                yield from self.take_notes()
                yield event
        except OutOfMemoryError as error:
            hint = remarks.smaller(self.session, self.settings, self.engine)
            raise OutOfMemoryError(error.message, hint) from error
        finally:
            exchange.answer.text = exchange.text
            if pin and not was_read(exchange.user):  # it was not read
                self.engine.unpin(place)
                exchange.user.pinned = False

    def mark_pinned(self, message: Message, on: bool, held: int) -> Note:
        """Marks a message as pinned, or not; the note says what the `held` tokens of it cost."""
        message.pinned = on
        if self.keeper:
            self.keeper.pinned(message.id, on)
        return remarks.pinned(self.messages, message, on, held, self.engine)

    def _give_up_thoughts(self, turn: Turn) -> Iterator[Event]:
        """Gives up the thoughts since the user's last message, unless the answer calls tools."""
        if turn.finish in ("error", "interrupted") or (self.tools and self.tools.calls_in(turn.text)):
            return
        thinking = self.template.thinking
        asked = max((at for at, one in enumerate(self.messages) if one.role == "user"), default=0)
        if answers := [one for one in self.messages[asked:] if one.thought_tokens]:
            places = [thinking.place(one.first, one.thought_tokens) for one in answers]
            self.engine.give_up_thoughts(places, thinking.drops)
            if self.settings.events_every:
                self.update_state()
                yield from self.looked()

    def session_now(self) -> Session:
        """The session of the engine, with this conversation's template."""
        thinking = self.template.thinking
        thought = [*thinking.marks, thinking.plain]
        session = replace(self.engine.session, template=self.template.name, thought=thought)
        return replace(session, opened_tokens=thinking.opened_tokens)

    def reseed(self, seed: int) -> None:
        self.engine.reseed(seed)
        self.settings = replace(self.settings, seed=seed)
        self.session = replace(self.session, seed=seed)

    @property
    def begun(self) -> bool:
        return self.messages != self._blank()

    def close(self) -> None:
        if self.keeper:
            self.keeper.close()
        self.engine.close()

    def resume(self, progress: ReadProgress, cancel: ShouldStop = never, leaf: int | None = None) -> bool:
        """Goes on with the stored conversation of the keeper, where it ended or at `leaf`; see `go_to`."""
        assert self.keeper is not None
        if done := self.go_to(self.keeper.leaf if leaf is None else leaf, progress, cancel):
            self.spell()
        return done

    def go_to(self, leaf: int | None, progress: ReadProgress = unheard, cancel: ShouldStop = never) -> bool:
        """Makes a stored message the last one (None: the beginning), with the cache as it was after it.

        Returns False if it was cancelled: then nothing has changed.
        """
        assert self.keeper is not None
        path = self.keeper.path(leaf)
        if not restore_cache(self.engine, self.template, self.keeper, path, progress, cancel):
            return False
        messages = from_stored(path) or self._blank()
        mark_branches(self.keeper, messages)  # it may fail: then nothing has changed
        self.keeper.move(leaf)
        self.holds.forget()
        self.messages = messages
        self.recall.read(messages)
        if path:
            self.system = path[0].text if path[0].role == "system" else None
        self._turn_marker_fed = ended_in_marker(self.engine.tokenizer, self.template, path)
        self.update_state()
        self.holds.share_out(self.messages, self.engine.seen)
        return True

    def opening(self) -> Iterator[Event]:
        """The events that a new reader needs first: the session, the messages, what the cache holds."""
        yield self.session
        yield from self.said_from(0)

    def said_from(self, start: int) -> Iterator[Event]:
        for index, message in enumerate(self.messages[start:], start):
            yield to_event(index, message)
        yield from self.looked()

    def spell(self) -> None:
        """Gives the messages of a stored conversation their tokens' texts, where events are asked for."""
        if self.keeper and self.settings.events_every:
            stored = {one.id: one.ids for one in self.keeper.path(self.keeper.leaf)}
            give_texts(self.messages, stored, self.engine.tokenizer)

    def looked(self) -> Iterator[Event]:
        """The newest state of the cache, where events are asked for."""
        if self.state is not None and self.settings.events_every:
            yield self.state

    def take_notes(self) -> Iterator[Note]:
        while self.notes:
            yield self.notes.pop(0)

    def clear(self, system: str | None = None) -> None:
        """Starts over with an empty cache, and another system prompt if one is given, see `begin_anew`."""
        if self.keeper:
            self.keeper.begin_anew()
        if system is not None:
            self.settings = replace(self.settings, system=system or None)
        self.engine.reset()
        self.holds.forget()
        self.state = None
        self._turn_marker_fed = False
        self.begin_blank()

    def begin_blank(self) -> None:
        self.system = self.tools.system(self.settings.system) if self.tools else self.settings.system
        self.messages = self._blank()

    def _blank(self) -> list[Message]:
        return [Message("system", self.system)] if self.system else []

    def update_state(self) -> None:
        self._remember_state(self.engine.cache_state())

    def _remember_state(self, state: CacheState) -> None:
        self.state = state
        self.holds.take(state)


def pin(chat: Chat, index: int, on: bool = True) -> Iterator[Event]:
    """Protects what is still held of message `index`, or stops that; yields `CacheState` and `Note`.

    Raises:
        UsageError: there is no such message, it was not read, none of its tokens is left to protect, or it
            was not pinned and is to be unpinned.
        BudgetError: so many tokens cannot be protected; nothing has changed.
    """
    if not 0 <= index < len(chat.messages):
        raise no_such(index, len(chat.messages))
    message = chat.messages[index]
    if not on and not message.pinned:
        those = [numbered(at) for at, one in enumerate(chat.messages) if one.pinned]
        raise UsageError(f"{numbered(index)} is not pinned.", f"Pinned are: {', '.join(those) or 'none'}.")
    place = tokens_of(message)
    if not place:
        raise UsageError(f"{numbered(index)} was not read: there is nothing of it to hold.")
    tokens = len(place)
    if on:
        tokens = chat.engine.pin(place)
        if not tokens:
            hint = "Pin it while it is held; /pin next pins what you say."
            if message.role == "user":
                hint = f"/pin again {index + 1} says it again, pinned."
            raise UsageError(f"Nothing of {numbered(index)} is left to pin: all of it is forgotten.", hint)
    else:
        chat.engine.unpin(place)
    note = chat.mark_pinned(message, on, tokens)
    if chat.keeper:
        chat.keeper.save_again(chat.engine)
    chat.update_state()
    yield from chat.looked()
    yield note
    yield from chat.take_notes()
