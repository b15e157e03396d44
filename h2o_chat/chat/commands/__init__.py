"""The slash commands: one table, typed and shown by the screen and by `--plain`."""
