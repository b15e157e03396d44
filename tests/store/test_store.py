"""A store returns what it was given: branches, streaming answers, titles, ids."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from storing import created, intact

from h2o_chat.base.errors import BusyError, UsageError
from h2o_chat.store import DATABASE, Conversation, Store, StoredMessage, conversation_ids


def test_a_conversation_comes_back(folder: Path) -> None:
    store = Store(folder)
    with store.begin("pocket", {"budget": 64, "stop": ["\udcff"]}) as writer:
        writer.run({"versions": {"h2o-chat": "1"}})
        system = writer.said("system", "Be kind.", [5])
        user = writer.said("user", "  Hello,\nmy name is Ada.  ", [5, 6, 70_000])
        writer.place(system, 0, 0)
        writer.place(user, 1, 2)
        answer = writer.answering()
        for token, text in enumerate(["Hi", " Ada", "</s>"]):
            writer.token(token, text)
        writer.finished("Hi Ada", "stop", 3, 5)
        assert writer.leaf == answer
    store.close()
    store = Store(folder)
    assert [(m.role, m.text, m.finish, m.first, m.last, m.ids) for m in store.path(writer.conversation)] == [
        ("system", "Be kind.", None, 0, 0, (5,)),
        ("user", "  Hello,\nmy name is Ada.  ", None, 1, 2, (5, 6, 70_000)),
        ("assistant", "Hi Ada", "stop", 3, 5, (0, 1, 2)),
    ]
    summary = store.summary(writer.conversation)
    assert (summary.title, summary.model) == ("Hello, my name is Ada.", "pocket")
    assert (summary.messages, summary.tokens) == (3, 7)
    assert summary.created <= summary.updated
    assert store.settings(writer.conversation) == {"budget": 64, "stop": ["\udcff"]}
    assert intact(folder)
    store.close()


def test_long_first_messages_make_short_titles(store: Store) -> None:
    with store.begin("m", {}) as writer:
        writer.said("user", " \n" * 1000 + "word " * 1000)
        writer.said("user", "not this")
        assert store.summary(writer.conversation).title == "word " * 11 + "word…"
    store.rename(writer.conversation, "a\udc80\0b")
    assert store.summary(writer.conversation).title == "a?\0b"


def test_going_back_adds_branches(store: Store) -> None:
    with store.begin("m", {}) as writer:
        asked = writer.said("user", "one")
        first = writer.said("assistant", "1")
        late = writer.said("user", "two")
        writer.move(asked)
        second = writer.said("assistant", "uno")
        writer.move(None)
        edited = writer.said("user", "eins")
        assert [m.id for m in store.path(writer.conversation)] == [edited]
        writer.move(second)
    assert [m.text for m in store.path(writer.conversation)] == ["one", "uno"]
    assert [m.text for m in store.path(writer.conversation, late)] == ["one", "1", "two"]
    assert [m.id for m in store.children(writer.conversation, asked)] == [first, second]
    assert [m.id for m in store.children(writer.conversation, None)] == [asked, edited]
    assert [m.id for m in store.messages(writer.conversation)] == [asked, first, late, second, edited]
    with store.claim(writer.conversation) as writer:
        assert writer.leaf == second
        elsewhere = created(store, "m", {})
        with store.claim(elsewhere) as other, pytest.raises(ValueError, match="is not in conversation"):
            other.move(second)
    assert store.path(elsewhere) == store.path(elsewhere, second) == []


def test_what_was_never_said_is_withdrawn(store: Store) -> None:
    with store.begin("m", {}) as writer:
        system = writer.said("system", "Be kind.", [5])
        withdrawn = [writer.said("user", "never mind"), writer.answering()]
        writer.token(1, "x")
        with pytest.raises(ValueError, match="something follows"):
            writer.withdraw(withdrawn[:1])
        writer.withdraw(withdrawn)
        assert writer.leaf == system
        assert store.summary(writer.conversation).title == ""
        asked = writer.said("user", "hello")
        assert asked > withdrawn[1], "numbers do not come again"
    assert [m.text for m in store.path(writer.conversation)] == ["Be kind.", "hello"]
    assert store.search("never") == []


def test_one_answer_at_a_time(store: Store) -> None:
    with store.claim(created(store, "m", {})) as writer:
        with pytest.raises(RuntimeError):
            writer.token(1, "x")
        with pytest.raises(RuntimeError):
            writer.finished("x", "eos", 0, 0)
        writer.answering()
        with pytest.raises(RuntimeError):
            writer.answering()


def test_leaving_in_the_middle_of_an_answer(store: Store) -> None:
    with store.begin("m", {}) as writer:
        writer.said("user", "hello", [1, 2, 3])
        answer = writer.answering()
        writer.place(answer, 7, 7)
        writer.token(3, "half")
        writer.token(4, " an answer")
        [_, partial] = store.path(writer.conversation)
        assert (partial.text, partial.finish, partial.ids) == ("half an answer", None, (3, 4))
        assert store.search("half") == [], "not finished"
        assert store.summary(writer.conversation).tokens == 5, "it streams, and is counted"
    [_, partial] = store.path(writer.conversation)
    assert (partial.text, partial.finish, partial.ids) == ("half an answer", "interrupted", (3, 4))
    assert (partial.first, partial.last) == (7, 8)
    assert len(store.search("half")) == 1
    assert [one.tokens for one in store.list()] == [store.summary(writer.conversation).tokens] == [5]


def test_found_by_id_prefix_and_last(store: Store) -> None:
    with pytest.raises(UsageError, match=r"no conversation in .* yet"):
        store.find("last")
    ids = [created(store, "m", {}, f"title {number}") for number in range(40)]
    assert store.find(ids[0].upper()) == store.find(ids[0][:7]) == ids[0]
    assert store.find("last") == ids[-1]
    with store.claim(ids[5]) as writer:
        writer.said("user", "hello")
    assert store.find("last") == ids[5]
    assert [one.id for one in store.list(2)] == [ids[5], ids[-1]]
    assert len(store.list()) == 40
    with pytest.raises(UsageError, match=f"Near it: .*{ids[0]}"):
        store.find(ids[0][:6] + "89")
    with pytest.raises(UsageError, match="no conversation ''"):
        store.find("")
    several = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) > 1)
    with pytest.raises(UsageError, match=f"'{several}' begins"):
        store.find(several)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.summary("nope"),
        lambda store: store.settings("nope"),
        lambda store: store.path("nope"),
        lambda store: store.children("nope", None),
        lambda store: store.caches("../../nope"),
        lambda store: store.claim("../../nope"),
        lambda store: store.rename("nope", "x"),
        lambda store: store.remove("nope"),
    ],
)
def test_unknown_conversations(store: Store, use: Callable[[Store], object]) -> None:
    with pytest.raises(UsageError, match="no conversation"):
        use(store)


def test_ids_for_the_shell(folder: Path) -> None:
    assert conversation_ids(folder) == []
    assert not folder.exists()
    store = Store(folder)
    ids = [created(store, "m", {}) for _ in range(3)]
    assert conversation_ids(folder) == ids[::-1]
    assert conversation_ids(folder, ids[0][:7].upper()) == ids[:1]
    store.close()
    (folder / DATABASE).write_text("garbage" * 1000)
    assert conversation_ids(folder) == []


def test_removed_with_its_caches(store: Store, folder: Path) -> None:
    kept, gone = created(store, "m", {}), created(store, "m", {})
    for conversation in (kept, gone):
        with store.claim(conversation) as writer:
            writer.run({})
            for _ in range(3):
                writer.said("user", "hello there")
        (store.caches(conversation) / "1.safetensors").write_bytes(b"x")
    with store.claim(gone), pytest.raises(BusyError):
        store.remove(gone)
    store.remove(gone)
    assert [one.id for one in store.list()] == [kept]
    assert {hit.conversation for hit in store.search("hello")} == {kept}
    assert os.listdir(folder / "caches") == [kept]
    assert os.listdir(folder / "locks") == []
    assert intact(folder)


def test_a_whole_conversation_or_nothing(store: Store) -> None:
    messages = [
        StoredMessage(10, None, "user", "a", None, 0, 1, (1, 2), 5.0),
        StoredMessage(30, 10, "assistant", "b", "eos", 2, 2, (3,), 6.0),
        StoredMessage(20, 10, "assistant", "c", "interrupted", -1, -1, (), 7.0),
    ]
    whole = Conversation("", "from elsewhere", "m", {"budget": 1}, 4.0, 5.0, 30, messages)
    other = replace(whole, leaf=20, created=9.0)
    conversation, second = store.put([whole, other])
    assert [(m.text, m.finish, m.ids, m.created) for m in store.path(conversation)] == [
        ("a", None, (1, 2), 5.0),
        ("b", "eos", (3,), 6.0),
    ]
    assert store.path(second)[-1].text == "c"
    back = store.whole(conversation)
    assert (back.title, back.model, back.settings, back.created) == (
        "from elsewhere",
        "m",
        {"budget": 1},
        4.0,
    )
    assert [message.text for message in back.branch()] == ["a", "b"]
    with pytest.raises(KeyError):
        store.put([whole, replace(whole, messages=messages[1:])])
    with pytest.raises(KeyError):
        store.put([replace(whole, leaf=99)])
    assert len(store.list()) == 2


@pytest.mark.parametrize("seed", [1, 4])
def test_no_word_of_a_removed_conversation_is_left_beside_others(
    store: Store, folder: Path, seed: int
) -> None:
    """SQLite moves rows as others come between; a copy stays in the unused part of a page."""
    chance = random.Random(seed)
    with store.begin("m", {}) as removed, store.begin("m", {}) as kept:
        for _ in range(200):
            removes = chance.choice([True, False])
            text = ("kweluzebra" if removes else "hello") + " " + "x" * chance.randrange(900)
            (removed if removes else kept).said("user", text)
    before = store.path(kept.conversation)
    store.remove(removed.conversation)
    assert all(b"kweluzebra" not in part.read_bytes() for part in folder.glob(f"{DATABASE}*"))
    assert store.path(kept.conversation) == before
