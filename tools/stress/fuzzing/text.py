"""Texts of people and models: prompts, numbers, names, titles, words to search for, text to draw."""

import os
from collections.abc import Iterator
from pathlib import Path

from fuzzing.reader import Reader, Violation, complain, refuse_controls
from h2o_chat.base import precedence
from h2o_chat.base.config import data_folder
from h2o_chat.base.errors import UsageError
from h2o_chat.base.safe import fit, safe_text, token_label
from h2o_chat.chat.files import importer
from h2o_chat.chat.files.export import file_name, one_line
from h2o_chat.cli.prompt_input import decode, read_script
from h2o_chat.cli.run import turns_of
from h2o_chat.lab.shared import lab_texts as texts
from h2o_chat.lab.shared.policy_variant import PolicyVariant
from h2o_chat.models.resolve import look_up, names_starting_with
from h2o_chat.policies.references import named
from h2o_chat.policies.shares import divide
from h2o_chat.store import Store, title_of
from h2o_chat.tui.transcript.markdown import cut, render

SAID = (
    "Grüße, 你好 🤦🏽\u200d♂️!\n---\n\x1b]0;title\x07\u202e\n---\r\n\n"
    "```py\nx = 1\n```\n> * **b** _i_ `c` ~~s~~\n1. one\n"
)


def readers(folder: Path) -> Iterator[Reader]:
    """Those of text; `folder` becomes the working directory, where names and paths may lead."""
    values = {"device": "cuda:1", "model": "pocket", "system": "You are kind.", "stop": '["###", "a"]'}
    texts = [f"{name}\n{values.get(name, '1')}".encode() for name in precedence.NAMES]
    yield Reader("scripts", [SAID.encode(), b"one\n---\ntwo\n", b"\xef\xbb\xbfone"], _script, share=4)
    yield Reader("numbers", texts, _number, share=4)
    yield Reader("variants", [b"h2o:sinks=0,recent=8", b"window", b"streaming:sinks=4"], _variant, share=2)
    yield Reader(
        "names", [b"llama-7b", b"org/name", b"~/models/x", b"here", b"./here", b"mine", b"nome"], _name
    )
    yield Reader("paths", [bytes(folder / "here" / "config.json"), b"here", b"~/x", b"/proc/self"], _path)
    yield Reader("words", [b"what name", b'"AND(* NEAR', SAID.encode(), b"a-b c_d \xc3\xa9"], _Search(folder))
    yield Reader("terminal", [SAID.encode(), b"# h\n\n- a\n  - b\n\n> q\n\n    code\n"], _draw, share=2)


def text_of(raw: bytes) -> str:
    """Bytes as text; one of four may hold lone surrogates, as arguments do."""
    return raw.decode("utf-8", "surrogateescape" if len(raw) % 4 == 0 else "replace")


def _script(raw: bytes) -> None:
    turns = turns_of(decode(raw, "The script"))
    if not all(turn.strip() for turn in turns):
        raise Violation("a turn is empty")


def _number(raw: bytes) -> None:
    name, _, value = text_of(raw).partition("\n")
    precedence.known(name, "The file")
    read = precedence.parse(name, value, "The variable")
    precedence.check(name, list(read) if isinstance(read, tuple) else read, "The file")


def _variant(raw: bytes) -> None:
    one = PolicyVariant.parse(text_of(raw))
    divide(named(one.policy), 64, one.sinks, one.recent)


def _name(raw: bytes) -> None:
    name = text_of(raw)
    names_starting_with(name)
    look_up(name)


def _path(raw: bytes) -> None:
    """Reads it as arguments, which hold no NUL; nothing on the way to a file is made."""
    path = Path(os.fsdecode(raw.replace(b"\0", b"")))
    data_folder(path)
    for read in (importer.read, precedence.from_file, read_script, texts.read_texts):
        try:
            read(path)
        except UsageError as error:
            refused = error
    raise refused


class _Search:
    """A store in which a conversation gets every text for its title, and every text is looked for."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "words")
        with self.store.begin("m", {}) as writer:
            self.id = writer.conversation
            writer.said("user", SAID)

    def __call__(self, raw: bytes) -> None:
        text = text_of(raw)
        self.store.rename(self.id, title_of(text))
        for hit in self.store.search(text):
            refuse_controls(one_line(hit.snippet), "a line of what was found")
        refuse_controls(one_line(self.store.summary(self.id).title), "the title")
        name = file_name(self.store.whole(self.id), "md")
        if Path(name).name != name or name.startswith("."):
            raise Violation(f"{name!r} is no name of a file")
        try:
            self.store.find(text)
        except UsageError as error:  # as a rule: it is no id
            complain(error)


def _draw(raw: bytes) -> None:
    text = text_of(raw)
    refuse_controls(safe_text(text), "safe text")
    drawn = render(text)
    refuse_controls(drawn.plain, "drawn text")
    drawn.wrap(40)
    if text:
        where = cut(text)
        if not 0 < where.at <= len(text):
            raise Violation(f"it was divided at {where.at} of {len(text)}")
    label = token_label(text[:50])
    refuse_controls(label, "a token's label")
    fit(label, 12)
