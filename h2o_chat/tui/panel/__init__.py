"""The memory panel, drawn from events."""
