"""Tools that a chat may call."""
