"""The commands. They import torch only when it is needed."""
