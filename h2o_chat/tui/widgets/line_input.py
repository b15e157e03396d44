"""A line to type into that takes all keys in the order in which they come."""

from textual.events import Key
from textual.widgets import Input

EDITING = ("cursor", "delete", "home", "end")
"""Beginnings of the actions that change the text or where one types."""


class LineInput(Input):
    """Edits at once. In Textual's line a letter overtakes the backspace before it, if both come together: the
    letter is taken here, while the key of a binding is first offered to all widgets around.
    """

    async def _on_key(self, event: Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, []):
            if binding.action.startswith(EDITING):
                await self.run_action(binding.action)
                event.stop()
                event.prevent_default()
