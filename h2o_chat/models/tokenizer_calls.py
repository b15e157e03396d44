"""Calls the model's tokenizer, which is untrusted: its failures become `ModelError`.

Tokenizers are written in Rust. A bug there (an index out of range, a regular expression that gives up) is a
panic: Python sees a `BaseException` that no `except Exception` catches, and Rust prints it on stderr.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from h2o_chat.base.errors import H2OChatError, ModelError

# A panic prints one line in any case; this suppresses the hundreds of lines of its backtrace.
os.environ["RUST_BACKTRACE"] = "0"


def tokens_of(tokenizer: Any, text: str, **how: Any) -> list[int]:
    """Ids of a text, without the special tokens that the tokenizer would add around it.

    With `split_special_tokens=True` special tokens in the text are plain characters.
    """
    with blamed_on_the_model("The model's tokenizer fails on this text"):
        ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False, **how)["input_ids"]
    return ids


def start_of(tokenizer: Any) -> list[int]:
    """The start token, where the model's texts begin with it.

    A GGUF file says so (`GgufTokenizer.begins`), and the tokenizer of a folder puts it there.
    """
    start = tokenizer.bos_token_id
    if start is None:
        return []
    begins = getattr(tokenizer, "begins", None)
    if begins is None:
        with blamed_on_the_model("The model's tokenizer fails on this text"):
            begins = tokenizer("x", verbose=False)["input_ids"][:1] == [start]
    return [start] if begins else []


def text_of(tokenizer: Any, ids: Sequence[int], **how: Any) -> str:
    """The text of ids; `how`: `skip_special_tokens` and the like, see transformers."""
    with blamed_on_the_model("The model's tokenizer fails to spell its tokens"):
        return str(tokenizer.decode(ids, **how))


@contextmanager
def blamed_on_the_model(
    what: str, hint: str = "Fetch the model's files again, or use another."
) -> Iterator[None]:
    """Turns exceptions inside, including panics of Rust, into a `ModelError`.

    `H2OChatError`, `MemoryError`, `KeyboardInterrupt` and `SystemExit` pass unchanged.
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
    """Whether Rust code has panicked. The exception's class cannot be imported: its module has no file."""
    return type(error).__module__ == "pyo3_runtime"


def one_line(error: BaseException) -> str:
    """An error's text on one line of at most 300 characters."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= 300 else f"{said[:300]} ..."
