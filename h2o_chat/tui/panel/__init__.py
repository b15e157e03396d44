"""The memory panel: what is held, drawn from events."""
