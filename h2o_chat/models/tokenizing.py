"""Where the model's tokenizer is called. It is a stranger's: what goes wrong in it is the model's fault.

Tokenizers are written in Rust. What fails there without having been foreseen (a regular expression that gives
up, an index out of range) is a panic, which comes to Python as a `BaseException` that no `except Exception`
holds, and which Rust tells on stderr by itself.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from h2o_chat.base.errors import H2OChatError, ModelError

# What Rust says of a panic cannot be held back; hundreds of lines below it can. Read at the first panic.
os.environ["RUST_BACKTRACE"] = "0"


def tokens_of(tokenizer: Any, text: str, **how: Any) -> list[int]:
    """Ids of a text, and of nothing that the tokenizer would put around it.

    Args:
        how: `split_special_tokens`: special tokens in the text are mere characters.

    Raises:
        ModelError: the tokenizer fails.
    """
    with blamed_on_the_model("The model's tokenizer fails on this text"):
        ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False, **how)["input_ids"]
    return ids


def text_of(tokenizer: Any, ids: Sequence[int], **how: Any) -> str:
    """The text of ids.

    Args:
        how: `skip_special_tokens` and the like, see transformers.

    Raises:
        ModelError: the tokenizer fails.
    """
    with blamed_on_the_model("The model's tokenizer fails to spell its tokens"):
        return str(tokenizer.decode(ids, **how))


@contextmanager
def blamed_on_the_model(
    what: str, hint: str = "Fetch the model's files again, or use another."
) -> Iterator[None]:
    """Whatever is raised inside becomes a `ModelError`, panics of Rust too.

    Errors of ours pass, and those of the machine: no memory, ctrl+c, the end of the program.

    Raises:
        ModelError: `what`, and why.
    """
    try:
        yield
    except (H2OChatError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise ModelError(f"{what}: {one_line(error)}", hint) from error


def is_panic(error: BaseException) -> bool:
    """Whether Rust code has panicked. The class has a module of no file, so it cannot be imported."""
    return type(error).__module__ == "pyo3_runtime"


def one_line(error: BaseException) -> str:
    """What went wrong in one line: transformers explains at length."""
    said = " ".join(str(error).split())
    if not said:
        return type(error).__name__
    return said if len(said) <= 300 else f"{said[:300]} ..."
