"""Inputs made of valid ones: seeded, a few microseconds each, and the same for the same number."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

ODD_BYTES = (
    *(b"\0", b"\x1b[2J", b"\x7f", b"\x85", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf0\x9f"),
    *(b"\r\n", b"\n---\n", b"\n", b"[", b"]", b"{", b"}", b'"', b"'", b"\\"),
    *(b"\\ud800", b"\\u0000", b"=", b":"),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 30, b"9" * 5000),
    *(b"0x" + b"f" * 5000, b"1e-320", b"../../x", b"/dev/zero", b"~nobody/", b"A" * 300, b"[" * 3000),
    *(b'{"a":' * 3000, b"```", b"<x>"),
    "\u202e\u2066\u2028\u200f\u0301🤦🏽\u200d♂️\u00a0\ufeff".encode(),
    *(b"'''", b'"""', b"%s", b"{0}", b"{{x}}"),
)
"""Bytes and values that readers stumble over."""

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, float("nan"), float("inf"), 2**31, 2**63, -(2**63) - 1),
    *(10**30, "", "a", "0", "\0", "\x1b[2J\x9b", "\ud800", "\u202e", "x" * 3000, "../../x", "/dev/zero", " "),
    *([], {}, [None], [[]], [[[[]]]], {"": ""}, {"a": {"a": {}}}, [1, 2, 3], ["a", 1], [0] * 300),
)


def encoded(*values: Any) -> list[bytes]:
    """The values as JSON."""
    return [json.dumps(one).encode() for one in values]


def mutated(rng: Random, examples: Sequence[bytes]) -> bytes:
    """One of the examples, changed in one to four places; now and then something that is like none."""
    what = rng.random()
    if what < 0.05:
        return rng.randbytes(rng.choice((0, 1, 2, 10, 100, 1000)))
    if what < 0.10:
        return b"".join(rng.choices(ODD_BYTES, k=rng.randint(1, 8)))
    raw = rng.choice(examples)
    if what < 0.6:
        raw = _restructured(rng, raw)
        if rng.random() < 0.7:
            return raw
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        raw = _changed(rng, raw, examples)
    return raw


def _changed(rng: Random, raw: bytes, examples: Sequence[bytes]) -> bytes:
    """One place changed."""
    at = rng.randint(0, len(raw))
    end = min(len(raw), at + rng.choice((1, 1, 4, 16, 100)))
    match rng.randrange(7):
        case 0:
            return raw[:at]
        case 1:
            return raw[:at] + raw[end:]
        case 2:
            return raw[:end] + raw[at:end] * rng.choice((1, 2, 50)) + raw[end:]
        case 3 if at < len(raw):
            return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
        case 4:
            other = rng.choice(examples)
            return raw[:at] + other[rng.randint(0, len(other)) :]
        case 5:
            return raw[:at] + rng.randbytes(end - at) + raw[end:]
        case _:
            return raw[:at] + rng.choice(ODD_BYTES) + raw[rng.choice((at, end)) :]


def _restructured(rng: Random, raw: bytes) -> bytes:
    """JSON, or one line of JSON lines, with some values exchanged; other input stays as it is."""
    lines = raw.split(b"\n") if raw.count(b"\n{") else [raw]
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return raw
    lines[at] = json.dumps(restructured(rng, value)).encode()
    return b"\n".join(lines)


def restructured(rng: Random, value: Any) -> Any:
    """A JSON value with one to three of its parts exchanged, left out, renamed or doubled."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _exchanged(rng, json.loads(json.dumps(value)))  # a copy: parts may stand in several places
    return value


def _exchanged(rng: Random, value: Any) -> Any:
    named = isinstance(value, dict)
    inside = list(value.items() if named else enumerate(value if isinstance(value, list) else []))
    if not inside or rng.random() < 0.2:
        return rng.choice(ODD_VALUES)
    key, part = rng.choice(inside)
    match rng.randrange(6):
        case 0:
            del value[key]
        case 1 if named:
            value[rng.choice(("", "\x1b[2J", "id", "event", "a" * 500, "\ud800"))] = value.pop(key)
        case 2 if not named:
            value.insert(rng.randint(0, len(value)), part)
        case 3:
            value[key] = rng.choice(inside)[1]
        case _:
            value[key] = _exchanged(rng, part)
    return value
