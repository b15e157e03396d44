"""The screen, drawn from events alone; it never imports torch, transformers or the engine."""
