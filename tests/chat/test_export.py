"""Exports: what they hold, and what nothing in them can do."""

import json
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import created

from h2o_chat.chat.conversation.message import as_conversation, from_stored
from h2o_chat.chat.files.export import FORMATS, file_name, to_json, to_markdown
from h2o_chat.store import Conversation, Store, StoredMessage

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)

MESSAGES = [
    StoredMessage(1, None, "user", "Why?", None, 0, 3, (5, 6, 7, 8), 100.0),
    StoredMessage(2, 1, "assistant", "Because.", "eos", 4, 5, (1, 2), 200.0),
    StoredMessage(3, 1, "assistant", "Since", "interrupted", 4, 4, (1,), 300.0),
]
TALK = Conversation("abcd2345", "Why?", "pocket", {"budget": 64, "stop": []}, 100.0, 300.0, 3, MESSAGES)


def test_json_holds_everything() -> None:
    data = json.loads(to_json(TALK))
    assert (data["format"], data["schema"]) == ("h2o-chat conversation", 1)
    assert [one["text"] for one in data["messages"]] == ["Why?", "Because.", "Since"]
    assert data["messages"][0]["ids"] == [5, 6, 7, 8]
    assert data["messages"][2]["parent"] == 1
    assert (data["leaf"], data["settings"]) == (3, {"budget": 64, "stop": []})


def test_markdown_is_the_active_branch() -> None:
    text = to_markdown(TALK)
    assert text.startswith("# Why?\n\n*1970-01-01 ")
    assert "; 1 messages of other branches are not shown*" in text
    assert text.endswith(
        "## #1 user\n\nWhy?\n\n## #2 assistant\n\nSince\n\n"
        "*[interrupted: the program ended before the answer did]*\n"
    )


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("```py\nx", "\n```"),
        ("```py\nx\n```", ""),
        ("~~~~\n~~~\n```", "\n~~~~"),
        ("````\n```\n", "\n````"),
        ("```\n``` no end", "\n```"),
        ("``` a `b` ```", ""),
        ("    ```", ""),
    ],
)
def test_an_open_block_of_code_is_closed(text: str, closing: str) -> None:
    exported = to_markdown(replace(TALK, leaf=1, messages=[replace(MESSAGES[0], text=text)]))
    assert exported.endswith(f"## #1 user\n\n{text}{closing}\n")


TOLD = [
    StoredMessage(4, None, "user", "My dog is *Rexo*.", None, 0, 3, (), 100.0),
    StoredMessage(
        9, 4, "user", "My dog?", None, 4, 7, (), 200.0, recalled=((4, "is *Rexo*."), (None, "too"))
    ),
    StoredMessage(10, 9, "assistant", "Rexo.", "eos", 8, 9, (), 300.0),
    StoredMessage(11, 10, "assistant", "Fine.", "eos", 10, 11, (), 400.0),
]
"""The numbers in the store are others than the places in the conversation."""


def test_it_is_told_what_was_recalled() -> None:
    talk = replace(TALK, leaf=11, messages=TOLD)
    said = to_markdown(talk)
    assert (
        "## #2 user\n\nMy dog?\n\n*[recalled from \\#1: “is \\*Rexo\\*.”]*\n\n*[recalled: “too”]*\n\n## #3"
        in said
    )


def test_so_it_is_of_messages_that_are_not_stored() -> None:
    messages = from_stored(TOLD)
    assert from_stored(as_conversation(messages, "pocket").branch()) == [
        replace(message, id=place, first=-1, last=-1) for place, message in enumerate(messages)
    ]


def test_hostile_text_obeys_nothing() -> None:
    said = "<script>alert(1)</script> \x1b]0;x\x07 \u202e"
    talk = replace(TALK, title=said, messages=[replace(MESSAGES[0], text=said)], leaf=1)
    heading = to_markdown(talk).split("\n")[0]
    assert "\\<script\\>" in heading
    for written in (heading, to_json(talk)):
        assert "\x1b" not in written
        assert "\u202e" not in written


@given(title=anything)
def test_a_name_is_no_way(title: str) -> None:
    name = file_name(replace(TALK, title=title), "md")
    assert name.endswith("abcd2345.md")
    assert len(name.encode()) <= 255
    assert not name.startswith((".", "-"))
    for kind in (PurePosixPath, PureWindowsPath):
        assert kind(name).name == name
        assert (kind("folder") / name).parent == kind("folder")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("../../etc/passwd", "etc-passwd-abcd2345.md"),
        ("C:\\x|y\0\n..", "c-x-y-abcd2345.md"),
        ("..", "abcd2345.md"),
        ("Grüße an Ada", "grüße-an-ada-abcd2345.md"),
        ("word " * 50, "word-word-word-word-word-word-word-word-word-word-abcd2345.md"),
    ],
)
def test_names(title: str, name: str) -> None:
    assert file_name(replace(TALK, title=title), "md") == name


@given(title=anything, text=anything, created=st.floats(allow_nan=True, allow_infinity=True))
def test_every_format_takes_any_text(title: str, text: str, created: float) -> None:
    talk = replace(
        TALK,
        title=title,
        created=created,
        messages=[replace(MESSAGES[0], text=text, created=created)],
        leaf=1,
    )
    for write in FORMATS.values():
        write(talk).encode()


def test_a_conversation_in_which_nobody_spoke(tmp_path: Path) -> None:
    store = Store(tmp_path)
    talk = store.whole(created(store, "m", {}))
    store.close()
    assert to_markdown(talk).startswith(f"# Conversation {talk.id}\n")
    assert json.loads(to_json(talk))["messages"] == []
