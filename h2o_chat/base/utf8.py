"""UTF-8 of long texts in slices: no other thread runs during a call into C, which takes 20 ms for 16 MiB."""

import codecs
from collections.abc import Iterator

SLICE = 256 << 10  # characters or bytes at once: below 1 ms


def encoded(text: str, errors: str = "strict") -> Iterator[bytes]:
    """The UTF-8 bytes of a text, slice by slice.

    Args:
        errors: what becomes of lone surrogates, see `str.encode`; "strict" raises UnicodeEncodeError.
    """
    for begin in range(0, len(text), SLICE):
        yield text[begin : begin + SLICE].encode("utf-8", errors)


def decoded(raw: bytes) -> str:
    """The text of UTF-8 bytes.

    Raises:
        UnicodeDecodeError: they are no UTF-8; `start` is the byte, counted from the first of `raw`.
    """
    texts, begin = list[str](), 0
    while begin < len(raw):
        piece = raw[begin : begin + SLICE]
        try:
            text, read = codecs.utf_8_decode(piece, "strict", begin + SLICE >= len(raw))
        except UnicodeDecodeError as error:
            error.start += begin
            raise
        texts.append(text)
        begin += read
    return "".join(texts)
