"""Conversations: turns and storage, recall, templates, files, commands, memory in words. No torch."""
