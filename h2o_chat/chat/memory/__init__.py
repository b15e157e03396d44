"""The memory in words: what the cache still holds, folded from the event stream. No widgets."""
