"""One conversation: its messages, the turn that goes on, where it is stored, and going back in it."""
