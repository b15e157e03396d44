"""The words of the program about a conversation: a greeting, and notes about the room in the memory."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from h2o_chat.base.config import SCREEN_TOKENS, Sampling, Settings
from h2o_chat.base.errors import BudgetError
from h2o_chat.chat.conversation.loops import Repeating
from h2o_chat.chat.conversation.message import Message, about_time, numbered
from h2o_chat.chat.conversation.spans import tokens_of
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.events.events import Note, Prompt, Session, Turn
from h2o_chat.models import smollm2
from h2o_chat.models.fits import auto_budget, mb
from h2o_chat.models.resolve import BUNDLED, POCKET, LocalModel, find, look_up

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine

FOUR_LINES = "Four lines are offered to try that: enter sends the one in the prompt, or type your own."
FIRST_MODELS = {
    POCKET: "pocket is a toy: it knows next to nothing of the world, but it remembers what it is told. "
    + FOUR_LINES,
    smollm2.NAME: "SmolLM2 is a small model: it talks, and is often wrong about the world. Watch what it"
    " forgets, and what comes back when you ask for it. " + FOUR_LINES,
}
"""The first models, and what is said once about each, before the first offer."""


def why_small(session: Session) -> str:
    """Why the screen gives the first models a small budget; empty where it is another budget or model."""
    if session.model not in FIRST_MODELS or session.budget != FIRST_BUDGET:
        return ""
    words = f"{FIRST_BUDGET} tokens are about {FIRST_WORDS} words, so that you soon see it forget"
    return f"{words}: /budget 512 gives it more."


def greeting(session: Session) -> str:
    """Two or three sentences about a conversation that has not begun."""
    if session.budget is None:
        memory = f"It remembers everything, up to {session.window:,} tokens."
    else:
        memory = f"It remembers {session.budget:,} tokens; what gets little attention is forgotten."
    template = f" It is spoken to by the {session.template} template."
    if session.template == "plain":
        template = " It has no chat template: it continues what you write."
    return f"{session.model} is ready. {memory}{'' if session.template == 'model' else template}"


FIRST_BUDGET, FIRST_WORDS = 128, 100
"""Budget of the first models on the screen, and about how many words that is. The first tokens are evicted
with the third or fourth message. With 64 slots a recalled piece may be evicted before it is answered;
SmolLM2's system prompt alone takes 31.
"""
ABOUT_MEMORY = frozenset({"budget", "policy", "sinks", "recent", "chunk", "prefill", "system"})
"""Settings that keep the usual budget when a person names one: they, and a system prompt, may need more."""


def first_budget(settings: Settings, named: Collection[str]) -> Settings:
    """The settings for the screen: `pocket` and SmolLM2 begin with a small budget, unless one was `named`."""
    if not ABOUT_MEMORY.isdisjoint(named):
        return settings
    model = look_up(settings.model)
    first = isinstance(model, LocalModel) and (model.folder in BUNDLED or model.folder == smollm2.place())
    return replace(settings, budget=FIRST_BUDGET) if first else settings


def fitted_budget(settings: Settings, named: Collection[str]) -> Settings:
    """The settings with the budget that suits a model that is here (`fits.auto_budget`), if nobody named one
    and `first_budget` has changed nothing.
    """
    if "budget" in named or settings.budget != Settings.budget:
        return settings
    import psutil

    return replace(settings, budget=auto_budget(find(settings.model).folder, psutil.virtual_memory().total))


def longer_than(
    tokens: int, session: Session, seen: int, longest: tuple[int, float] = (0, 0.0)
) -> Iterator[Note]:
    """A note before a prompt is read that is longer than the budget: what will stay of it, and what it costs
    to keep it all; `longest`: see `Chat.longest_read`.
    """
    budget, recent = session.budget, session.recent
    if budget is None or tokens <= budget:
        return
    stay = [f"about the newest {recent:,} tokens" if recent > 1 else "the newest token"] if recent else []
    stay += ["the most important words"] if budget > recent + session.sinks else []
    more = more_room(session, seen + tokens)
    kept = " and ".join(stay) or "what the policy chooses"
    what = f"{tokens:,} tokens, {budget:,} slots: it is read once from beginning to end; kept: {kept}."
    again = f"{seen + tokens:,} tokens again{about_reading(seen + tokens, longest)}"
    hint = f"With {more:,} slots none of it would be forgotten: --budget {more}, or /budget more (f3), which"
    hint += f" reads {again}."
    if more < seen + tokens:
        hint = f"The model's window has {session.window:,} tokens: no budget would hold all of it."
    yield Note("long-prompt", what, hint)


def about_reading(tokens: int, longest: tuple[int, float]) -> str:
    """`, about 28 s` for so many tokens at the pace of the longest prompt; empty where none was read."""
    read, ms = longest
    return f", about {about_time(tokens * ms / read / 1000)}" if read else ""


def more_room(session: Session, tokens: int) -> int:
    """The smallest power of two that holds `tokens` and half a budget, or two budgets; at most the window."""
    assert session.budget is not None
    needed = max(2 * session.budget, tokens + session.budget // 2)
    return min(1 << (needed - 1).bit_length(), session.window)


def at_limit(
    turn: Turn, sampling: Sampling, most: int | None, repeating: Repeating, thinking: Thinking
) -> Iterator[Note]:
    """A note where an answer ended at a limit that nobody asked for, or within its thought: what to do.

    Args:
        most: the limit; that of `sampling`, but in a loop.
    """
    if turn.finish == "length" and thinking.marks[1] and not thinking.divide(turn.text)[1]:
        hint = "--max-tokens N gives it more room; --think off leaves the thought out, where the model can."
        yield Note("thought-limit", "The answer ended within its thought.", hint)
        return
    if turn.finish == "stopped" and repeating.ends_answer and (said := repeating.piece):
        hint = "/regenerate gives another answer. /set max_tokens 20000 lets answers repeat themselves."
        yield Note("answer-repeats", f"The answer began to repeat {said}: it was ended.", hint)
    if turn.finish == "length" and turn.new_tokens == most and sampling.max_tokens == SCREEN_TOKENS:
        what = f"The answer was ended after {turn.new_tokens:,} tokens, the limit for one answer."
        hint = "/set max_tokens 20000 allows more; none removes the limit. If it repeats itself: /regenerate."
        yield Note("answer-limit", what, hint)


def too_small(engine: "Engine", prompt: Prompt) -> Iterator[Note]:
    """A note where part of the system prompt that was just read cannot be protected."""
    if engine.session.budget is None or prompt.system <= (protected := engine.protection()[0]):
        return
    fits = engine.budget_for(prompt.system)
    what = f"The system prompt has {prompt.system:,} tokens. Only the first {protected:,} are protected."
    hint = f"A budget of {fits:,} would protect it all." if fits and fits <= engine.session.window else ""
    yield Note("small-budget", what, hint)


def pinned(messages: Sequence[Message], message: Message, on: bool, held: int, engine: "Engine") -> Note:
    """A note with what it costs that a message was pinned (`on`), or not any more; `held` tokens are left."""
    index, tokens = messages.index(message), len(tokens_of(message))
    slots, left = engine.protection()
    unread = sum(one.pinned and one.last >= engine.seen for one in messages)  # the last token of an answer
    what = f"{held} tokens stay" if held == tokens else f"{held} of its {tokens} tokens are left and stay"
    said = f"is pinned: {what}." if on else "is no longer pinned."
    later = f" ({unread} with your next message)" if unread else ""
    room = "" if left is None else f", {left:,} are left for what is important"
    text = f"{numbered(index)} {said} {slots:,} slots protected{later}{room}."
    return Note("pinned" if on else "unpinned", text, about=index)


def smaller(session: Session, settings: Settings, engine: "Engine") -> str:
    if session.budget is None:
        half = max(64, engine.seen // 2)
        size = mb(half * session.slot_bytes)
        return f"The full cache grows with every token: --policy h2o --budget {half} stays below {size}."
    try:  # do sinks and recent tokens fit into half of it?
        engine.check(replace(settings, budget=session.budget // 2))
        fewer = f"--budget {session.budget // 2} needs half of that"
    except BudgetError:
        fewer = "they cannot be fewer"
    more = [f"--chunk {session.chunk // 2} reads prompts in smaller parts"] if session.chunk > 16 else []
    more = ["--prefill chunked reads prompts in parts"] if session.prefill == "full" else more
    more += ["--kv-dtype int8 makes slots smaller"] if session.kv_dtype == session.dtype else []
    more += ["--dtype bfloat16 halves slots and weights"] if session.dtype in ("float32", "float64") else []
    more += ["--quantize nf4 makes the weights smaller"] if session.quantization == "none" else []
    size = mb(session.budget * session.slot_bytes)
    room = f"The {session.budget:,} slots take {size}, and as much again so that a turn can be taken back"
    return f"{room}: {fewer}. Else: {'; '.join(more) or 'a smaller model'}."
