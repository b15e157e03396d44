"""Recall: earlier words that a question needs, and the cache no longer holds, are said to the model again."""
