"""What the cache remembers of a conversation, in words: folded from the event stream. No widgets."""
