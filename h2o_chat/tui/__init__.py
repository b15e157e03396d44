"""The screen. It is built on events alone and never imports torch, transformers or the engine."""
