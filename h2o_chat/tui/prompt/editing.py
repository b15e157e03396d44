"""Texts that come back into the prompt box: an earlier message to edit, and a text that was not sent."""

from h2o_chat.tui.prompt.outgoing import Outgoing
from h2o_chat.tui.prompt.prompt_box import PromptBox
from h2o_chat.tui.transcript.transcript import Transcript
from h2o_chat.tui.widgets.divider import Divider


class Editing:
    """An earlier message that is edited in the box, and the draft that stood there before.

    Attributes:
        index: of the message; None while none is edited.
    """

    def __init__(self, prompt: PromptBox, transcript: Transcript, divider: Divider) -> None:
        self.index: int | None = None
        self._prompt, self._transcript, self._divider = prompt, transcript, divider
        self._draft = ""

    def begin(self, index: int, text: str) -> None:
        self._transcript.inspector.end()
        if self.index is None:
            self._draft = "\n".join(filter(None, (self._draft, self._prompt.text)))
        self.index = index
        self._prompt.put(text)
        self._prompt.screen.set_focus(self._prompt)  # at once: what is typed next is for it
        self._transcript.select(index)
        self._divider.doing("editing · enter sends this instead, esc gives up")
        self._transcript.refresh_bindings()

    def end(self) -> int | None:
        """Stop editing; returns the index of the message, None if none was edited."""
        index, self.index = self.index, None
        self._transcript.select(None)
        return index

    def give_up(self) -> None:
        """Stop editing and leave the message as it was; the draft comes back."""
        if self.end() is not None:
            self._prompt.put_aside()
            self.bring_back()
            self._divider.doing("")
            self._transcript.refresh_bindings()

    def put_aside(self) -> bool:
        """Empty the box, `up` brings its text back; False where it is empty."""
        there = bool(self._prompt.text)
        if self.index is not None:
            self.give_up()
        else:
            self._prompt.put_aside()
        return there

    def take_back(self, sent: Outgoing) -> str:
        """Put a text that was not taken into the box again; returns a remark."""
        if not sent.typed:
            return "nothing has changed"
        self.give(sent.typed, sent.edits)
        return "stopped · nothing was sent · your text is back"

    def give(self, text: str, edits: int | None) -> None:
        """Put a text that was not sent into the box again, before what stands there."""
        if edits is not None and self.index is None:
            self.begin(edits, text)
        else:
            self._prompt.put_before(text)

    def bring_back(self) -> None:
        """Put the draft into the box again, before what stands there by now."""
        if self._draft:
            self._prompt.put_before(self._draft)
        self._draft = ""
