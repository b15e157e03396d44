"""What is typed and what it does: the prompt, slash commands, menus, settings."""
