"""The bounded core: slots, what is due when, attention to them, and how they are given up. Torch alone."""
