"""A text that was sent and waits: for a model that is being opened, or for the files that it names."""

from h2o_chat.tui.talk.attach import Reading
from h2o_chat.tui.talk.prompt import PromptBox


class Outbox:
    """Holds at most one text.

    Args:
        prompt: where a text stands again that cannot be sent.

    Attributes:
        files: What it waits for, where it waits for files.
    """

    def __init__(self, prompt: PromptBox) -> None:
        self.files: Reading | None = None
        self._typed = ""
        self._prompt = prompt

    def __bool__(self) -> bool:
        return bool(self._typed)

    def wait(self, typed: str, files: Reading | None = None) -> None:
        """Hold a text until `take`."""
        self._typed, self.files = typed, files

    def take(self) -> str:
        """The text, which waits no longer; empty where there is none."""
        typed, self._typed, self.files = self._typed, "", None
        return typed

    def give_back(self) -> bool:
        """Put the text into the prompt again, unless another stands there by now; whether there was one."""
        typed = self.take()
        if typed and not self._prompt.text:
            self._prompt.put(typed)
        return bool(typed)
