"""What may come back into the prompt box: an earlier message to be said anew, a text that was not sent."""

from dataclasses import dataclass

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


class Editing:
    """An earlier message in the box, and the text that it took the place of.

    Attributes:
        index: The place of the message; None while none is edited.
    """

    def __init__(self, prompt: PromptBox, transcript: Transcript) -> None:
        self.index: int | None = None
        self._prompt, self._transcript = prompt, transcript
        self._draft = ""

    def begin(self, index: int, text: str) -> None:
        """Put a message into the box; what stands there waits."""
        if self.index is None:
            self._draft = self._prompt.text or self._draft
        self.index = index
        self._prompt.put(text)
        self._prompt.focus()
        self._transcript.select(index)

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

    def bring_back(self) -> None:
        """The text that waited stands in the box again, unless there is another by now."""
        if self._draft and not self._prompt.text:
            self._prompt.put(self._draft)
        self._draft = ""
