"""A conversation: templates, turns, what is kept, resume, export, import. No torch."""
