"""`h2o-chat lab bench ...`: how the program behaves on a machine. Commands: `cli/lab_commands.py`."""
