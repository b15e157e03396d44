"""Measurements of a model and of this program: `h2o-chat lab eval ...` and `h2o-chat lab bench ...`."""
