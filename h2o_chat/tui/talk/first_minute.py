"""The first minute with the bundled model: four lines to send with enter, and what the marks mean. Said once."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from psutil import virtual_memory

from h2o_chat.base.errors import StoreError
from h2o_chat.base.own import open_own
from h2o_chat.models.aliases import ALIASES, fits
from h2o_chat.tui.divider import Divider
from h2o_chat.tui.glyphs import size
from h2o_chat.tui.panel.held import CacheView
from h2o_chat.tui.talk.greeting import TOY
from h2o_chat.tui.talk.prompt import PromptBox
from h2o_chat.tui.transcript.transcript import Transcript

FILE = "first-minute"
"""In the data folder: it was shown."""
BETWEEN_S = 0.8
"""Between two messages of the small talk: they are to be seen."""
OWN_MOST = 2
"""With so many messages of their own, visitors are left alone."""


@dataclass(frozen=True)
class Offer:
    """A line in the empty prompt, and what enter says then: one message after the other."""

    shown: str
    texts: tuple[str, ...]


SMALL_TALK = (
    "I would like to find an Italian restaurant in San Jose.",
    "Please book a table there for two people at seven in the evening.",
    "Yes, that is correct. Thank you.",
    "What will the weather be like in San Jose tomorrow?",
    "I want to see a film after dinner. Is there a funny one?",
    "Great. Which music do you like best?",
    "I like old songs with a guitar, and I sing them to my dog.",
    "Thank you, that was a nice talk.",
)
CODE = "4821"
OFFERS = (
    Offer("Hi, my name is Priya.", ("Hi, my name is Priya.",)),
    Offer(f"My locker code is {CODE}.", (f"My locker code is {CODE}.",)),
    Offer(f"… {len(SMALL_TALK)} lines of small talk, to be forgotten", SMALL_TALK),
    Offer("What is my locker code?", ("What is my locker code?",)),
)

MARKS = (
    "The first words are forgotten now. Marks show it: the brighter a word, the more heads remember it; bold"
    " is important, struck through is forgotten. ctrl+t changes the marks."
)
REAL = ("qwen2.5-3b-instruct", "qwen2.5-1.5b-instruct", "qwen2.5-0.5b-instruct", "smollm2-135m")
"""Real models to begin with, the best first. Anybody may fetch them, and they answer without a long thought."""


def real_model(memory_bytes: int) -> str:
    """A line with the command for a real model that fits into so much memory."""
    best = next((ALIASES[name] for name in REAL if fits(ALIASES[name], memory_bytes) == "16 bit"), None)
    if best is None:
        return "Other models: h2o-chat models tells which fit this machine."
    return (
        f"For a real model that fits this machine: h2o-chat -m {best.name} ({size(best.bytes_16)} to fetch);"
        " h2o-chat models lists more."
    )


class FirstMinute:
    """What is offered and said in the first conversation with the bundled model.

    Args:
        folder: the data folder, where it is remembered that it was shown; None: it is not shown.
        send: says a text; whether it was taken.
        changed: called when what is offered or played has changed.
    """

    def __init__(
        self,
        folder: Path | None,
        prompt: PromptBox,
        transcript: Transcript,
        divider: Divider,
        send: Callable[[str], bool],
        changed: Callable[[], None],
    ) -> None:
        self._path = None if folder is None else folder / FILE
        self._prompt, self._transcript, self._divider = prompt, transcript, divider
        self._send, self._changed = send, changed
        self._offers: list[Offer] = []
        """Not sent yet, the next one first."""
        self._playing: list[str] = []
        """Messages of the small talk that follow by themselves."""
        self._sending = self._question_asked = self._marks_due = False
        self._own = 0
        """Messages that were typed."""

    @property
    def playing(self) -> bool:
        """Whether messages follow by themselves."""
        return bool(self._playing)

    @property
    def offering(self) -> bool:
        """Whether a line stands in the empty prompt."""
        return self._prompt.offering

    def begin(self) -> str:
        """A conversation is opened: in the first the offers begin. Returns what to say of them."""
        path, self._path = self._path, None
        self._end()
        self._marks_due = path is not None and _remember(path)
        if not self._marks_due:
            return ""
        self._offers = list(OFFERS)
        self._show()
        return TOY

    def said(self) -> None:
        """A message is sent, by an offer or by the person."""
        if self._sending:
            return
        self._playing.clear()
        self._own += 1
        if self._own >= OWN_MOST:
            self._offers.clear()
        self._prompt.offer("")
        self._changed()

    def done(self) -> None:
        """An answer is over: what comes next is sent, or offered."""
        if self._playing:
            left = len(self._playing)
            self._divider.doing(f"small talk · {left} more · esc stops")
            self._prompt.set_timer(BETWEEN_S, self._play)
            return
        if self._question_asked:
            self._question_asked = False
            self._transcript.messages.note(self._result() + real_model(virtual_memory().total))
        self._show()

    def remembered(self, memory: CacheView) -> None:
        """The cache has reported: when the first token has gone, the words are marked."""
        if not self._marks_due or not memory.evicted:
            return
        self._marks_due = False
        if self._transcript.heat.mode == "off":
            self._transcript.cycle_heat()
        self._transcript.messages.note(MARKS)

    def stop(self) -> None:
        """No more small talk."""
        self._playing.clear()

    def _take(self) -> None:
        """Enter in the empty prompt."""
        offer = self._offers[0]
        if self._say(offer.texts[0]):
            del self._offers[0]
            self._playing = list(offer.texts[1:])
            self._question_asked = not self._offers
            self._prompt.offer("")
            self._changed()

    def _play(self) -> None:
        """The next message of the small talk, unless somebody stopped it or something else goes on."""
        if self._playing and self._say(self._playing[0]):
            del self._playing[0]
            self._changed()

    def _say(self, text: str) -> bool:
        self._sending = True
        try:
            return self._send(text)
        finally:
            self._sending = False

    def _result(self) -> str:
        """What the question has shown, if it was answered rightly."""
        memory = self._transcript.heat.memory
        if CODE not in self._transcript.chosen_text() or not memory.evicted:
            return ""
        return f"{memory.evicted:,} of {memory.seen:,} tokens are forgotten, the code is not. "

    def _show(self) -> None:
        """Offer the next line."""
        if self._offers:
            self._prompt.offer(self._offers[0].shown, self._take)
        self._changed()

    def _end(self) -> None:
        self._offers.clear()
        self._playing.clear()
        self._marks_due = self._question_asked = False
        self._prompt.offer("")


def _remember(path: Path) -> bool:
    """Writes down that it was shown; False if it was before.

    Also False where that cannot be written: it would be in the way at every start. A disk that fails is told
    where conversations are stored.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except (OSError, StoreError):  # FileExistsError: the usual case
        return False
    return True
