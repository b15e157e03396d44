"""One turn: the positions of a message and its answer, their tokens, and both written to disk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from h2o_chat.base.config import SCREEN_TOKENS, Sampling
from h2o_chat.base.errors import BudgetError
from h2o_chat.base.progress import ShouldStop
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.conversation.loops import Repeating
from h2o_chat.chat.conversation.message import OWN_PAGE, Message, Recalled
from h2o_chat.chat.conversation.spans import prompt_spans, was_read
from h2o_chat.chat.templates.chat_template import Template
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.chat.tools.tool_calls import ToolCalls
from h2o_chat.events.events import Prompt, Token, Turn

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine
    from h2o_chat.engine.row import Row


class Exchange:
    """One turn of a conversation, while it goes on; `system_tokens` of its prompt are the system prompt."""

    def __init__(
        self,
        text: str,
        system_tokens: int,
        before: Sequence[Message],
        keeper: Keeper | None,
        recalled: tuple[Recalled, ...] = (),
        role: str = "user",
    ) -> None:
        self.user, self.answer = Message(role, text, recalled=recalled), Message("assistant", "")
        numbers = {one.index: before[one.index].id for one in recalled if 0 <= one.index < len(before)}
        numbers[len(before)] = OWN_PAGE
        self._recalled = tuple((numbers.get(one.index), one.words) for one in recalled)
        """(number of the message in the store, words); None: from elsewhere."""
        self._keeper = keeper
        if keeper:
            keeper.rescue.messages = before
        self._system_tokens = system_tokens
        self._system = before[0] if before and before[0].role == "system" else None
        self._end = next((one.last for one in reversed(before) if was_read(one)), -1) + 1
        self.repeating = Repeating(text)
        self._pieces: list[str] = []  # joined once: a string that grows by a token costs its whole length

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def stops(self, sampling: Sampling, cancel: ShouldStop) -> ShouldStop:
        """A function that says when to stop: also where an answer repeats itself and no length was chosen."""
        usual = sampling.max_tokens == Sampling().max_tokens and not sampling.ignore_eos
        if sampling.max_tokens != SCREEN_TOKENS and not usual:
            return cancel
        self.repeating.ends_answer = True
        return lambda: bool(self.repeating.piece) or cancel()

    def write_down(self, ids: list[int]) -> None:
        """Writes what a person typed, and all ids that will be read, to disk before the model sees it."""
        if self._keeper is None:
            return
        if self._system and self._system.id is None:  # once
            self._system.id = self._keeper.said(self._system.role, self._system.text)
        self.user.id = self._keeper.said(self.user.role, self.user.text, ids, self._recalled)
        self.answer.id = self._keeper.answering()

    def read(self, prompt: Prompt) -> None:
        """Gives messages their positions, once the prompt was read."""
        for message, tokens in zip((self._system, self.user), prompt_spans(prompt, self._end), strict=True):
            if message is not None and tokens:
                message.first, message.last = tokens.start, tokens.stop - 1
                if self._keeper:
                    self._keeper.placed(message.id, message.first, message.last)
        if self._keeper:
            self._keeper.placed(self.answer.id, prompt.last + 1, -1)  # its end is known when it has one

    def token(self, token: Token) -> None:
        if self._keeper:
            self._keeper.token(token.id, token.text)
        self.repeating.note_token(token.id, token.text)
        self._pieces.append(token.text)
        self.answer.first = self.answer.first if was_read(self.answer) else token.position
        self.answer.last = token.position

    def ended(self, turn: Turn, thinking: Thinking) -> None:
        """The answer has ended. If the turn failed, the engine went back: its tokens are nowhere."""
        self.answer.thought_tokens = thinking.tokens(self._pieces) if was_read(self.answer) else 0
        self._pieces, self.answer.finish = [turn.text], turn.finish
        if turn.finish == "error":
            system = self._system if self._system_tokens else None
            for message in filter(None, (self.user, self.answer, system)):
                message.first = message.last = -1

    def close(self, turn: Turn, engine: "Row") -> None:
        if self._keeper is None:
            return
        if turn.finish == "error":
            self._keeper.placed(self.user.id, -1, -1)
        if not turn.prompt_tokens and turn.finish == "stopped":
            self._keeper.withdraw([self.user.id, self.answer.id])
            return
        self._keeper.finished(turn.text, turn.finish, self.answer.first, self.answer.last)
        if turn.finish not in ("error", "interrupted"):  # the engine of an interrupted answer is gone
            self._keeper.save(engine, self.answer.id)


def turn_tokens(
    engine: "Engine",
    template: Template,
    system: str | None,
    text: str,
    turn_marker_fed: bool,
    tools: ToolCalls | None = None,
    role: str = "user",
) -> tuple[list[int], int]:
    """The tokens of a turn, and how many of them are the protected system prompt."""
    pending = engine.pending
    if not engine.seen and not pending:
        fed = tools.first(system, text) if tools else template.first(system, text)
        system_tokens = fed.tokens_before_text if system else 0
        engine.protect(system_tokens)
        return fed.ids, system_tokens
    later = tools.results if tools and role == "tool" else template.later
    return later(text, turn_marker_fed).after(pending, engine.eos), 0


def pin_before(engine: "Engine", place: range, recalled: Sequence[Recalled]) -> None:
    """Protects a message that is about to be read; what is recalled with it is among its tokens."""
    try:
        engine.pin(place)
    except BudgetError as error:
        if not recalled:
            raise
        what = f"The {len(place):,} tokens of your message include what is recalled with it."
        raise BudgetError(error.message, f"{error.hint} {what}") from error
