"""One model answers one conversation: the step, sampling, detokenizing, observing, the saved state."""
