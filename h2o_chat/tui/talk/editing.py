"""What may come back into the prompt box: an earlier message to be said anew, a text that was not sent."""

from dataclasses import dataclass

from h2o_chat.tui.divider import Divider
from h2o_chat.tui.talk.prompt import PromptBox
from h2o_chat.tui.transcript.transcript import Transcript


@dataclass
class Sent:
    """What a job was begun with."""

    text: str = ""
    """What the person typed for it."""
    edits: int | None = None
    """The message in whose place it is said."""
    taken: bool = False
    """It has become part of the conversation."""
    withdrawn: bool = False
    """It was stopped before the model had read it."""
    fork: int | None = None
    """The message from which on another branch is opened."""


class Editing:
    """An earlier message in the box, and the text that it took the place of.

    Attributes:
        index: The place of the message; None while none is edited.
    """

    def __init__(self, prompt: PromptBox, transcript: Transcript, divider: Divider) -> None:
        self.index: int | None = None
        self._prompt, self._transcript, self._divider = prompt, transcript, divider
        self._draft = ""

    def begin(self, index: int, text: str) -> None:
        """Put a message into the box, to say something else instead; what stands there waits."""
        self._transcript.inspector.end()
        if self.index is None:
            self._draft = self._prompt.text or self._draft
        self.index = index
        self._prompt.put(text)
        self._prompt.focus()
        self._transcript.select(index)
        self._divider.doing("editing · enter sends this instead, esc gives up")
        self._transcript.refresh_bindings()

    def end(self) -> int | None:
        """It is sent, or no longer wanted; which it was."""
        index, self.index = self.index, None
        self._transcript.select(None)
        return index

    def give_up(self) -> None:
        """The message stays as it was."""
        if self.end() is not None:
            self._prompt.clear()
            self.bring_back()
            self._divider.doing("")
            self._transcript.refresh_bindings()

    def take_back(self, sent: Sent) -> str:
        """What was sent and not taken stands in the box again; what is said of it."""
        if not sent.text:
            return "nothing has changed"
        if sent.edits is not None:
            self.begin(sent.edits, sent.text)
        elif not self._prompt.text:
            self._prompt.put(sent.text)
        else:
            return "stopped · nothing was sent"
        return "stopped · nothing was sent · your text is back"

    def bring_back(self) -> None:
        """The text that waited stands in the box again, unless there is another by now."""
        if self._draft and not self._prompt.text:
            self._prompt.put(self._draft)
        self._draft = ""
