"""Files of strangers: what is read of them, and what is said where they are wrong; fuzzed by test_fuzz.py."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.files import importer
from h2o_chat.chat.files.export import to_json
from h2o_chat.chat.files.importer import parse, read
from h2o_chat.store import Conversation, Store, StoredMessage

MESSAGES = [
    StoredMessage(7, None, "system", "Be kind.", None, 0, 1, (3, 4), 50.0),
    StoredMessage(8, 7, "user", "Why?", None, 2, 3, (5, 6), 100.0),
    StoredMessage(9, 8, "assistant", "Because.", "eos", 4, 5, (1, 2), 200.0),
    StoredMessage(12, 8, "assistant", "Since", "interrupted", 4, 4, (1,), 300.0),
]
TALK = Conversation(
    "abcd2345", "Why?", "pocket", {"budget": 64, "stop": ["x"], "system": None}, 60.0, 70.0, 9, MESSAGES
)
OURS = json.loads(to_json(TALK))


def parsed(data: Any) -> list[Conversation]:
    return parse(json.dumps(data).encode(), "file.json")


def test_our_own_export_comes_back(store: Store) -> None:
    [read] = parsed(OURS)
    assert replace(read, updated=70.0, id="abcd2345") == replace(
        TALK,
        settings={"budget": 64, "stop": ("x",)},
        messages=[replace(one, first=-1, last=-1, ids=()) for one in MESSAGES],
    ), "all but positions and tokens"
    [stored] = store.put([read])
    assert [(m.role, m.text, m.finish, m.created) for m in store.messages(stored)] == [
        (m.role, m.text, m.finish, m.created) for m in MESSAGES
    ]
    assert [m.text for m in store.path(stored)] == ["Be kind.", "Why?", "Because."]
    again = json.loads(to_json(store.whole(stored)))
    assert again["settings"] == {"budget": 64, "stop": ["x"]}


SAID = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "name": "x"}]


def test_pins_are_exported_and_come_back(store: Store) -> None:
    pinned = replace(TALK, messages=[replace(one, pinned=one.text == "Why?") for one in MESSAGES])
    [read] = parsed(json.loads(to_json(pinned)))
    assert [one.text for one in read.messages if one.pinned] == ["Why?"]
    [stored] = store.put([read])
    assert [one.text for one in store.messages(stored) if one.pinned] == ["Why?"]
    again = json.loads(to_json(store.whole(stored)))["messages"]
    assert [one.get("pinned") for one in again] == [one.text == "Why?" or None for one in MESSAGES]
    assert "pinned" not in to_json(TALK), "where nothing is pinned, an older program reads what it always did"


@pytest.mark.parametrize(
    ("text", "conversations", "messages"),
    [
        (json.dumps({"messages": SAID, "model": "gpt"}), 1, 2),
        (json.dumps(SAID, indent=2), 1, 2),
        ("\ufeff" + json.dumps(SAID), 1, 2),
        ("\n".join(map(json.dumps, SAID)) + "\n\n", 1, 2),
        (json.dumps(SAID[0]), 1, 1),
        ("\r\n".join([json.dumps({"messages": SAID})] * 3), 3, 2),
        ("\n".join([json.dumps(SAID)] * 2), 2, 2),
        ("\n".join([json.dumps(OURS), json.dumps(OURS)]), 2, 4),
    ],
)
def test_what_can_be_read(text: str, conversations: int, messages: int) -> None:
    found = parse(text.encode(), "file")
    assert [len(one.messages) for one in found] == [messages] * conversations
    assert found[0].leaf == found[0].branch()[-1].id


def test_openai_messages() -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}]
    said = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": parts}]
    [talk] = parsed({"model": "gpt", "messages": said, "temperature": 1})
    assert (talk.title, talk.model, talk.settings) == ("What is this?", "gpt", {})
    assert [(one.role, one.text) for one in talk.branch()] == [
        ("system", "Be kind."),
        ("user", "What is\nthis?"),
    ]


@pytest.mark.parametrize(
    ("message", "left_out"),
    [
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, True),
        ({"role": "assistant", "tool_calls": [{}]}, True),
        ({"role": "assistant", "content": "", "function_call": {"name": "f"}}, True),
        ({"role": "assistant", "content": None}, True),
        ({"role": "tool", "content": [{"type": "image_url"}]}, True),
        ({"role": "function", "name": "f", "content": "1"}, True),
        ({"role": "assistant", "content": "I look.", "tool_calls": [{}]}, False),
        ({"role": "assistant", "content": ""}, False),
    ],
)
def test_messages_of_tools(message: dict[str, Any], left_out: bool) -> None:
    notes: list[str] = []
    [talk] = parse(json.dumps([*SAID, message, *SAID]).encode(), "file", notes)
    assert len(talk.branch()) == 2 * len(SAID) + (not left_out)
    assert bool(notes) == left_out


def ours(**changed: Any) -> dict[str, Any]:
    return OURS | changed


def message(**changed: Any) -> dict[str, Any]:
    return ours(messages=[OURS["messages"][0], OURS["messages"][1] | changed])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "file.json has no messages"),
        ({"messages": []}, "file.json: messages has no messages"),
        ({}, "file.json has no messages"),
        (5, "file.json is 5 and not an object"),
        ({"messages": {}}, "file.json: messages is an object and not a list"),
        ({"messages": float("inf")}, "file.json: messages is Infinity and not a list"),
        ([5], "file.json: [0] is 5 and not an object"),
        ([*SAID, {"role": "narrator", "content": ""}], "file.json: [2].role is 'narrator'"),
        ([{"role": "tool", "content": ""}], "file.json has no messages"),
        (
            [*SAID, {"role": "system", "content": ""}],
            "[2].role is 'system', which only the first message can be",
        ),
        ([{"role": {}, "content": ""}], "[0].role is an object"),
        ([{"role": "user"}], "[0].content is null"),
        ([{"role": "user", "content": None}], "[0].content is null and not a text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "[0].content[0].type is 'image_url'"),
        (
            [{"role": "user", "content": [{"type": "text", "text": 1}]}],
            "[0].content[0].text is 1 and not a text",
        ),
        ({"messages": SAID, "model": 5}, "model is 5 and not a text"),
        (ours(format="other"), "format is 'other' and not 'h2o-chat conversation'"),
        (ours(schema=2), "schema is 2; this h2o-chat reads 1"),
        (ours(schema="\x1b[31m" * 99), "schema is '\\x1b[31m\\x1b[31m"),
        (ours(title=None), "title is null and not a text"),
        (ours(title="x" * 1001), "title has 1,001 characters: more than 1,000"),
        (ours(leaf=99), "leaf is 99, which is none of the messages"),
        (ours(leaf=True), "leaf is true"),
        (ours(created=float("nan")), "created is NaN and not a number"),
        (ours(created=1e300), "created is 1e+300"),
        (ours(created=10**400), "created is a number of more than 64 bits"),
        (ours(settings=[]), "settings is a list and not an object"),
        (ours(settings={"budget": "much"}), "settings.budget is 'much'"),
        (ours(settings={"budget": 0}), "settings.budget is 0"),
        (ours(messages=[]), "file.json has no messages"),
        (message(id=7), "messages[1].id is 7, which is no number or was there before"),
        (message(id=7.5), "messages[1].id is 7.5"),
        (message(parent=8), "messages[1].parent is 8, which is none of the messages before it"),
        (message(parent="7"), "messages[1].parent is '7'"),
        (message(role="root"), "messages[1].role is 'root'"),
        (message(role="system"), "messages[1].role is 'system', which only the first"),
        (message(role="assistant", finish="fine"), "messages[1].finish is 'fine'"),
        (message(text=None), "messages[1].text is null"),
        (message(created=-1), "messages[1].created is -1"),
        (message(pinned="yes"), "messages[1].pinned is 'yes' and not true or false"),
        (message(pinned=1), "messages[1].pinned is 1 and not true or false"),
    ],
)
def test_what_is_wrong_is_said(data: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(data)
    assert said in error.value.message
    assert error.value.message.startswith("file.json")
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "file is empty"),
        (b" \n ", "file is empty"),
        (b"\xff\xfe", "not UTF-8 text (invalid start byte at byte 0)"),
        (b"{", "file line 1 is not JSON: Expecting property name"),
        (b'{"messages": [\n{"role": user}]}', "file line 2 is not JSON: Expecting value at column 10"),
        (b'["x"]\n["x"', "file line 2 is not JSON"),
        (b"[" * 100_000, "file is nested too deeply"),
        (b"[5]\n" + b"[" * 100_000, "file line 2 is nested too deeply"),
        (b"1" * 5000, "file has a number that is too long"),
        (
            b'[{"role": "user", "content": "a"}]\n{"role": "user", "content": "a"}',
            "file line 2 has no messages",
        ),
    ],
)
def test_what_is_no_json(raw: bytes, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(raw, "file")
    assert said in error.value.message


def test_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importer, "MAX_BYTES", 2 << 20)
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="zero is larger than 2 MiB"):
        read(tmp_path / "zero")
    monkeypatch.setattr(importer, "MAX_MESSAGES", 3)
    with pytest.raises(UsageError, match=r"\[3\] is one message more than 3"):
        parsed(SAID * 2)
    with pytest.raises(UsageError, match="more than 3 messages"):
        parse("\n".join([json.dumps(SAID)] * 2).encode(), "file")
    with pytest.raises(UsageError, match="more than 3 lines"):
        parse("\n".join([json.dumps(SAID[0])] * 4).encode(), "file")
    monkeypatch.setattr(importer, "MAX_CHARACTERS", 5)
    for content in ("123456", [{"type": "text", "text": "123"}] * 2):
        with pytest.raises(UsageError, match=r"[67] characters: more than 5|more than 5 characters"):
            parsed([{"role": "user", "content": content}])
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read(missing)
