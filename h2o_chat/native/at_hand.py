"""Whether the native step can be used on this machine: what is packed for nobody is wasted."""

import importlib


def usable() -> bool:
    """Whether the library is there."""
    try:
        library = importlib.import_module("h2o_chat.native.library")
    except ModuleNotFoundError:
        return False
    return not isinstance(library.library(), str)
