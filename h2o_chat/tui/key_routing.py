"""Text goes to the prompt, wherever the keyboard is, unless it is a command for a chosen message."""

from typing import Any

from textual.app import App
from textual.events import Event, Key, Paste
from textual.widgets import Input, TextArea

from h2o_chat.tui.help import Help
from h2o_chat.tui.prompt.talk_pane import TalkPane


class KeyRouting:
    def __init__(self, app: App[Any], pane: TalkPane) -> None:
        self._app, self._pane = app, pane

    @property
    def away(self) -> bool:
        """Whether a key would go neither to the prompt nor to another line or a dialog."""
        alone = len(self._app.screen_stack) == 1 or self._helping
        return self._pane.is_mounted and alone and not isinstance(self._app.focused, Input | TextArea)

    @property
    def _helping(self) -> bool:
        return isinstance(self._app.screen, Help)

    async def took(self, event: Event) -> bool:
        """True if the key was handled here; False where it goes on to whatever has the focus.

        Called before Textual lets a key bubble through all widgets: by then the next key would be routed,
        though it is not known yet whether this one chooses a message.
        """
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            return False
        self._app.app_focus = True  # Textual does so, too: the focus is asked for below
        bar = self._pane.find_bar
        alone = len(self._app.screen_stack) == 1
        if alone and isinstance(event, Key) and event.key == "escape" and bar.has_class("-open"):
            bar.action_close()
            return True
        if not self.away:
            return False
        if self._is_text(event):
            if self._helping:
                self._app.pop_screen()
            self.go()
            return False
        if self._helping:
            return False
        assert isinstance(event, Key)
        if not await self._app._check_bindings(event.key, priority=True):
            await self._app._check_bindings(event.key)
            if event.key in ("escape", "enter"):
                self.go()
        return True

    def _is_text(self, event: Key | Paste) -> bool:
        """Whether this is text for the prompt, or sends the text there."""
        transcript = self._pane.transcript
        if isinstance(event, Paste):
            return True
        if self._helping:
            return event.is_printable
        if event.key == "enter":
            return transcript.choice.view is None and self._pane.memory.cursor is None
        command = transcript.letters and event.key in self._app.screen.active_bindings
        return event.is_printable and not command

    def go(self) -> None:
        """Give the keyboard to the prompt; nothing stays chosen."""
        self._pane.transcript.choice.end()
        self._app.screen.clear_selection()
        self._app.screen_stack[0].set_focus(self._pane.prompt)
