"""The conversation as it is read: messages, their tokens, what is still held of them."""
