"""The prompt: the box, what waits to be sent, the dialogs, and the pane that holds them."""
