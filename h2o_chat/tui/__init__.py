"""The screen, drawn from events and the open `Chat`; it never imports torch, transformers or the engine."""
