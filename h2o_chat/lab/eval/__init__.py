"""`h2o-chat lab eval ...`: what forgetting costs on a model. Commands: `cli/lab_commands.py`."""
