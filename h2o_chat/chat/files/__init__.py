"""Conversations as files: export, import, batches, and files attached to a message."""
