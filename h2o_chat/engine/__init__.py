"""One model answers one or many conversations: step, sampling, detokenizing, observing, the saved state."""
