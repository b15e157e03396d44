"""The transcript: messages, their tokens, and what is still held of them."""
