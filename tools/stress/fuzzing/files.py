"""Files of strangers: configuration, recordings, conversations to import, texts and questions; exports."""

import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fuzzing.mutate import encoded
from fuzzing.reader import Reader, Violation
from h2o_chat.base.precedence import from_file
from h2o_chat.chat.files import export, importer
from h2o_chat.events import events, recording
from h2o_chat.lab.eval.qa import Item
from h2o_chat.lab.shared.lab_texts import read_items, read_texts
from h2o_chat.store import Conversation, Store, StoredMessage, clean

_CONFIGURATION = b"""# mine
[aliases]
mine = "org/name"
[defaults]
model = "mine"
budget = 64
top_p = 0.9
ignore_eos = true
stop = ["###", "User:"]
seed = 0x10
system = '''You are
kind.'''
"""
_OPENAI = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
}
_PARTS = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "content": "12:00"},
    {"role": "assistant", "content": "Hello"},
]
_ANSWER = {"role": "assistant", "text": "\x1b[2J"}
_OURS = {
    **{"format": "h2o-chat conversation", "schema": 1, "id": "abcd2345", "title": "Hi", "model": "pocket"},
    **{"created": 1.5, "updated": 2, "settings": {"budget": 64, "stop": ["a"], "system": None}, "leaf": 3},
    "messages": [
        {"id": 1, "parent": None, "role": "user", "text": "Hi", "first": 0, "ids": [1], "created": 1},
        {"id": 2, "parent": 1, "finish": "eos", "first": 1, "created": 1} | _ANSWER | {"text": "```\n<b>"},
        {"id": 3, "parent": 1, "finish": "interrupted", "created": 1e9} | _ANSWER,
    ],
}


def readers(folder: Path) -> Iterator[Reader]:
    """Those of files that are not models; files are written in `folder`."""
    talks = encoded(_OPENAI, _PARTS, _OURS, [_PARTS[1]])
    talks += [b"\n".join(encoded(*_PARTS)), talks[0] + b"\n" + talks[1]]
    yield Reader("configuration", [_CONFIGURATION], partial(_configuration, folder), share=2)
    yield Reader("events", _events(), _event, refuses=ValueError, share=4)
    yield Reader("recordings", [b"\n".join(_events()) + b"\n"], _recording, share=3)
    yield Reader("imports", talks, _Imports(folder), share=20)  # what users take from strangers
    yield Reader("exports", [talks[2]], _exports, share=1)
    yield Reader("texts", [b'["one", "two"]', b"one text"], partial(_texts, folder))
    (line,) = encoded({"context": "c", "question": "q", "answer": "a"})
    yield Reader("items", [line, line + b"\n" + line + b"\n"], partial(_items, folder))


def _configuration(folder: Path, raw: bytes) -> None:
    path = folder / "config.toml"
    path.write_bytes(raw)
    from_file(path)


def _events() -> list[bytes]:
    """One of each kind, and a session of a conversation that goes on."""
    session = {
        **dict.fromkeys(("model", "template", "policy", "prefill", "quantization", "dtype", "kv_dtype"), "x"),
        **dict.fromkeys(("device", "engine"), "cpu"),
        **dict.fromkeys(("sinks", "recent", "chunk", "threads", "seed", "layers", "kv_heads", "window"), 4),
        **{"event": "session", "schema": 1, "revision": None, "budget": 64, "versions": {"torch": "2"}},
    }
    heavy = events.Heavy(position=1, text="a", hold=1.0, score=2.0, mean=0.5, kind="H")
    some: list[events.Event] = [
        events.Said(0, "user", "Hi", None, None),
        events.Prompt(3, 0, 2, 1, 1.5),
        events.Token(5, "a", 3, 1.5),
        events.CacheState(
            4, 4, 100, 200, 0.5, {"S": 1, "H": 2, "R": 1}, [heavy], [(1, 1.0, 2.0)], [[1.0, 0.5]]
        ),
        events.Turn("a", "eos", 3, 1, 1.0, 2.0, 4, 4, 0, 0.1, [(0, 1.0)]),
        events.Note("store", "The disk is full.", "Free some."),
        events.Error("memory", "Out of memory.", "Try less."),
        events.End(1, 1, 0.5, None),
    ]
    return [*encoded(session), *(events.to_json(one).encode() for one in some)]


def _event(raw: bytes) -> None:
    read = events.from_json(raw.decode("utf-8", "replace"))
    event = events.from_json(events.to_json(read))  # lone surrogates are gone now
    if events.from_json(events.to_json(event)) != event:
        raise Violation("an event is not what it is when written and read again")


def _recording(raw: bytes) -> None:
    for event in recording.parse(io.BytesIO(raw), "The recording"):
        assert event.event


class _Imports:
    """Checks that an imported conversation can be stored, shown and found."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "imports")

    def __call__(self, raw: bytes) -> None:
        found = importer.parse(raw, "The file")
        for read, conversation in zip(found, self.store.put(found), strict=True):
            whole = self.store.whole(conversation)
            if len(self.store.path(conversation)) != len(read.branch()):
                raise Violation("another branch is stored than was read")
            for write in export.FORMATS.values():
                write(whole).encode()
            self.store.remove(conversation)


def _exports(raw: bytes) -> None:
    """Whatever a conversation holds, it is exported; the JSON is read again as it was."""
    pieces = [clean(piece.decode("utf-8", "surrogateescape")) for piece in raw.split(b'"')][:60]
    title, model, *texts = (piece[:1000] for piece in [*pieces, "", ""])
    messages = [
        StoredMessage(n, n - 1 if n > 1 else None, ("user", "assistant")[n % 2], text, None, -1, -1, (), 1.0)
        for n, text in enumerate(texts, 1)
    ]
    leaf = len(messages) if messages else None
    talk = Conversation("abcd2345", title, model, {"stop": ["a"]}, 1.0, 2.0, leaf, messages)
    export.to_markdown(talk).encode()
    exported = export.to_json(talk)
    if not exported.isascii() or re.search(r"[\0-\x09\x0b-\x1f\x7f]", exported):
        raise Violation("the JSON holds what a terminal would obey")
    if not messages:
        return
    (again,) = importer.parse(exported.encode(), "The export")
    if (again.title, again.model, again.leaf, again.messages) != (title, model, leaf, messages):
        raise Violation("the JSON is read as another conversation")


def _texts(folder: Path, raw: bytes) -> None:
    path = folder / ("texts.json" if raw[:1] in b"[{" else "texts.txt")
    path.write_bytes(raw)
    for text in read_texts(path):
        text.encode()


def _items(folder: Path, raw: bytes) -> None:
    path = folder / "items.jsonl"
    path.write_bytes(raw)
    for item in read_items(path, Item):
        (item.context + item.question + item.answer).encode()
