"""The half of the screen that shows a conversation: the pane, the jobs behind it, their reports."""
