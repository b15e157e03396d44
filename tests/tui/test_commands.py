"""Slash commands, pins, settings, history, files and exports, in the real app on a real small model."""

import json
import os
import re
import stat
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from screens import SMALL, WIDE, Drive, Screen
from textual.binding import Binding
from typed import Held

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.chat.commands import bodies, table
from h2o_chat.chat.files import attached
from h2o_chat.chat.files.attached import LIMIT_BYTES, with_files
from h2o_chat.store import Conversation, StoredMessage, title_of
from h2o_chat.tui.help import help_text
from h2o_chat.tui.pane import pane
from h2o_chat.tui.prompt import completion_menu
from h2o_chat.tui.prompt.prompt_box import KEPT, PromptHistory, edited
from h2o_chat.tui.prompt.screen_commands import ACTS
from h2o_chat.tui.prompt.talk_pane import KEYS, WHILE_BUSY


def menu(screen: Screen) -> list[str]:
    """The lines of the list above the prompt; none where it is hidden."""
    shown = screen.app.pane.menu  # type: ignore[attr-defined]
    return shown.content.plain.splitlines() if shown.display else []


def test_every_command_has_one_name_and_stands_in_the_help() -> None:
    names = [one.name for one in table.COMMANDS]
    assert len(set(names)) == len(names)
    shown = help_text([], 200).plain
    assert all(
        f"/{one.name} {one.arguments}".strip() in shown and one.help in shown
        for one in table.commands("screen")
    )


def test_every_command_and_every_key_does_something_and_nothing_else_is_there_to_be_done() -> None:
    keys = [re.fullmatch(r"act\('(.+)'\)", one.action) for one in KEYS if isinstance(one, Binding)]
    named = {key[1] for key in keys if key} - {one for (one,) in WHILE_BUSY}  # they wait
    assert {one.name for one in table.commands("screen")} | named == ACTS.keys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello /help", "hello /help"),
        ("//help me", "/help me"),
        ("//etc/hosts is empty", "/etc/hosts is empty"),
        ("// is the root", "/ is the root"),
        ("  /etc/hosts is empty", "  /etc/hosts is empty"),
        ("  //help me", "  //help me"),
        ("    /model\n    /new\n", "    /model\n    /new\n"),
    ],
)
def test_what_is_no_command_is_sent(text: str, said: str) -> None:
    assert table.parse(text) == said


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("/why/x", "Did you mean /why x?"),
        ("/pni/3", "Did you mean /pin 3?"),
        ("/usr/bin is empty", "/help shows them."),
        ("/ is the root", "/help shows them."),
    ],
)
def test_one_slash_is_never_sent_and_what_was_meant_is_proposed(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="is no command") as wrong:
        table.parse(text)
    assert hint in wrong.value.hint
    assert "// sends a text that begins with /" in wrong.value.hint


def test_a_command_with_what_stands_behind_it_and_the_nearest_of_a_wrong_one() -> None:
    found = table.parse("/system Be kind.\nAnd short.")
    assert not isinstance(found, str)
    assert (found[0].name, found[1]) == ("system", "Be kind.\nAnd short.")
    spaced = table.parse("  /system Be kind.")
    assert (spaced[0], spaced[1]) == (found[0], "Be kind.")
    with pytest.raises(UsageError, match="/polcy is no command") as wrong:
        table.parse("/polcy window")
    assert "Did you mean /policy?" in wrong.value.hint
    assert "//" in wrong.value.hint


async def test_the_menu_completes_and_a_wrong_command_stays_in_the_box(drive: Drive) -> None:
    async with drive("stories3m", WIDE) as screen:
        await screen.pilot.press("/")
        assert len(menu(screen)) == 9
        await screen.pilot.press("p", "i")
        assert [line.split()[1] for line in menu(screen)] == ["/pin"]
        await screen.pilot.press("tab")
        assert screen.app.prompt.text == "/pin "
        await screen.pilot.press("ctrl+a", "ctrl+k")
        await screen.pilot.press(*"/po", "enter")
        assert screen.app.prompt.text == "/policy "
        await screen.pilot.press("down", "enter")
        assert screen.app.prompt.text == "/policy h2o-paper"
        screen.app.prompt.put("/stat")
        await screen.pilot.pause()
        assert len(menu(screen)) == 1
        await screen.pilot.press("escape")
        assert menu(screen) == []
        await screen.pilot.press("enter")
        assert screen.app.prompt.text == "/stat", "it is no command: nothing is lost"
        assert "Did you mean /stats?" in screen.bodies()[-1]
        await screen.pilot.press(*"/stats", "enter")
        assert "Nothing was seen yet" in screen.bodies()[-1]
        assert screen.app.prompt.text == "/stats", "what could not be done stays too"
        await screen.pilot.press("f1")
        await screen.pilot.press("pagedown")
        assert any("/quit" in line and "leave" in line for line in screen.lines())
        await screen.pilot.press("escape")
        assert screen.app.prompt.has_focus


async def test_pins_a_message_from_the_box(stored: Drive) -> None:
    async with stored(sampling=Sampling(max_tokens=12)) as screen:
        assert "no system prompt" in await screen.say("/system")
        await screen.say("/pin next")
        assert "the next message is pinned" in str(screen.app.query_one("#entry").border_subtitle)
        await screen.say("I am Flora.")
        assert screen.chat.messages[0].pinned
        assert screen.said("#1 is pinned")
        assert any("#1 you · pinned" in line for line in screen.lines())
        assert "pinned" not in str(screen.app.query_one("#entry").border_subtitle)
        pinned = screen.chat.messages[0].first
        why = await screen.say(f"/why @{pinned + 6}")
        assert "its message is pinned" in why
        assert "at most" in await screen.say("/pin 2")
        assert "no longer pinned" in await screen.say("/unpin 1")
        assert "no message #77" in await screen.say("/pin 77")
        assert "slots" in await screen.say("/stats")
        assert "12" in await screen.say("/set max_tokens")


async def test_a_pin_that_does_not_fit_gives_the_text_back(stored: Drive) -> None:
    async with stored() as screen:
        await screen.say("/pin")
        await screen.say("word " * 30)
        assert screen.chat.messages == []
        assert screen.app.prompt.text == "word " * 30
        assert "It would fit into a budget of" in screen.bodies()[-1]
        assert "the next message is pinned" in str(screen.app.query_one("#entry").border_subtitle)
        screen.app.prompt.clear()
        await screen.say("/unpin", "I am Flora.")
        assert not screen.chat.messages[0].pinned


async def test_a_message_that_is_stopped_while_it_is_read_is_pinned_when_it_is_sent_again(
    stored: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stored() as screen:
        await screen.say("/pin next")
        held = Held(screen, monkeypatch, tokens=0)
        await screen.start("I am Flora.")
        await screen.pilot.press("escape")
        await screen.answered()
        assert screen.app.prompt.text == "I am Flora."
        assert "the next message is pinned" in str(screen.app.query_one("#entry").border_subtitle)
        held.go_on.set()
        await screen.pilot.press("enter")
        await screen.answered()
        assert screen.chat.messages[0].pinned


async def test_settings_change_while_the_conversation_goes_on(stored: Drive) -> None:
    async with stored(sampling=Sampling(max_tokens=8)) as screen:
        assert "temperature = 0.7" in await screen.say("/set temperature 0.7")
        assert "It must be in" in await screen.say("/set top-p 3")
        assert "Did you mean seed" in await screen.say("/set sed 3")
        await screen.say("/set seed 5")
        await screen.say("/set stop none")
        await screen.say("My name is Flora.")
        first = screen.chat.messages[1].text
        assert screen.chat.session.seed == 5
        seen = screen.chat.engine.seen
        await screen.say("/budget 32")
        await screen.until(lambda: screen.chat.session.budget == 32, "the memory is another one")
        assert screen.chat.engine.seen == seen
        assert screen.chat.engine.cache.most_kept <= 32
        assert screen.app._memory.session.budget == 32
        assert [message.text for message in screen.chat.messages][1] == first
        await screen.say("/policy caote")
        await screen.until(lambda: screen.chat.session.policy == "caote", "four sinks")
        assert "16 or more" in await screen.say("/budget 3")
        assert screen.chat.session.budget == 32
        assert "Nothing was forgotten yet" in await screen.say("/budget more")
        await screen.say("/policy window")
        await screen.say("And yours?")
        assert (screen.chat.session.policy, len(screen.chat.messages)) == ("window", 4)
        conversation = screen.chat.keeper.conversation
        assert screen.chat.keeper.store.settings(conversation)["policy"] == "window"
        await screen.say("word " * 60)
        assert screen.said("32 slots: it is read once")
        seen = screen.chat.engine.seen
        await screen.pilot.press("f3")
        await screen.until(lambda: screen.chat.session.budget > 32, "there is more room")
        assert screen.chat.session.budget in (64, 128, 256)
        assert screen.chat.session.budget >= screen.chat.engine.seen == seen


async def test_something_is_remembered_for_all_conversations(stored: Drive) -> None:
    async with stored(sampling=Sampling(max_tokens=5)) as screen:
        assert "Nothing is remembered" in await screen.say("/remember")
        assert "/forget 1 takes it back" in await screen.say("/remember My cat is called Miso.")
        await screen.say("I live in Tarsenburg.")
        await screen.pilot.press("tab", *["up"] * 8)
        assert screen.app.transcript.selected == 0
        bodies.remember(screen.app.pane, "")
        facts = screen.chat.keeper.store.facts
        assert [(one.text, one.conversation) for one in facts.all()] == [
            ("My cat is called Miso.", None),
            ("I live in Tarsenburg.", screen.chat.keeper.conversation),
        ]
        await screen.pilot.press("escape")
        for wrong in ("Miso", "7"):
            assert "/remember shows" in await screen.say(f"/forget {wrong}")
        assert "My cat is called Miso." in await screen.say("/forget 1")
        assert "2: I live in Tarsenburg." in await screen.say("/remember")


async def test_exports_copies_and_finds(
    stored: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with stored(sampling=Sampling(max_tokens=30)) as screen:
        await screen.say("I live in <Tarsenburg>.", "Tell me of a baker.", "And of a cat.")
        assert "is no format" in await screen.say("/export html")
        assert f"Wrote talk.md in {tmp_path}" in await screen.say("/export md talk.md")
        assert "I live in <Tarsenburg>." in Path("talk.md").read_text()
        assert "is there already" in await screen.say("/export md talk.md")
        assert "Wrote" in await screen.say("/export md talk.md --force")
        # Only a word of its own is the flag: the end of a name would write over another file.
        Path("notes").write_text("mine")
        assert "Wrote" in await screen.say("/export md notes--force")
        assert Path("notes").read_text() == "mine"
        assert Path("notes--force").exists()
        assert "is there already" in await screen.say("/export md notes--force")
        assert "Wrote" in await screen.say("/export md --force")
        assert "cannot be written" in await screen.say(f"/export md {'x' * 300}")
        await screen.say("/export json")
        assert json.loads(next(Path().glob("*.json")).read_text())["messages"][0]["text"].endswith("burg>.")
        await screen.say("/copy")
        assert screen.app.clipboard == screen.chat.messages[-1].text
        assert "No answer has a code block" in await screen.say("/copy code")
        assert "nothing to copy" in await screen.say("/copy that")
        await screen.ask("/find tarsenburg")
        await screen.until(lambda: "1 of 1" in screen.page(), "the find bar has found it")
        await screen.pilot.press("escape")
        assert screen.app.prompt.has_focus
        await screen.say("Keep this:\n~~~py\nx = 1\n~~~")
        await screen.say(f"/copy {len(screen.chat.messages) - 1}")
        assert screen.app.clipboard == screen.chat.messages[-2].text
        assert "no theme" in await screen.say("/theme nothing")
        await screen.say("/theme nord")
        assert screen.app.theme == "nord"


async def test_the_code_that_is_copied_is_the_longest_of_the_newest_answer_with_any(stored: Drive) -> None:
    """An answer ends with how the code is called, and people go on talking."""
    texts = (
        "Write it.",
        "Here:\n```py\ndef one():\n    return 1\n```\nUse:\n```\none()\n```",
        "Thanks.",
        "Bye.",
    )
    said = [
        StoredMessage(at, at - 1 if at else None, ("user", "assistant")[at % 2], text, None, -1, -1, (), 1.0)
        for at, text in enumerate(texts)
    ]
    async with stored(SMALL, sampling=Sampling(max_tokens=4)) as screen:
        model = screen.chat.session.model
        screen.chat.keeper.store.put([Conversation("", "Code", model, {}, 1.0, 1.0, 3, said)])
        (code,) = (one.id for one in screen.chat.keeper.store.list() if one.title == "Code")
        await screen.ask(f"/open {code}")
        await screen.answered()
        await screen.say("/copy code")
        assert screen.app.clipboard == "def one():\n    return 1\n"


async def test_inside_tmux_a_copy_goes_to_its_buffer(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default it keeps programs from the terminal's clipboard. A stand-in notes what it is told."""
    tmux, told = tmp_path / "tmux", tmp_path / "told"
    tmux.write_text(f'#!/bin/sh\necho "$@" > {told}\ncat >> {told}\n')
    tmux.chmod(0o755)
    monkeypatch.setenv("TMUX", "/nowhere,1,0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    async with drive("stories3m", WIDE) as screen:
        screen.app.copy_to_clipboard("naïve")
        assert told.read_text() == "load-buffer -w -\nnaïve"


async def test_what_was_typed_comes_back_by_key(drive: Drive) -> None:
    async with drive("stories3m", sampling=Sampling(max_tokens=5)) as screen:
        await screen.say("Once upon a time")
        assert "not stored" in await screen.say("/budget 32")
        await screen.pilot.press("up")
        assert screen.app.prompt.text == "/budget 32"
        await screen.pilot.press("up", "up", "down", "down", "down")
        assert screen.app.prompt.text == ""
        await screen.pilot.press("ctrl+g")
        assert screen.app._notifications, "a test has no terminal to lend"


def test_history_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "data")
    for text in ("one", "two\nlines", "two\nlines", "\ud800 three"):
        history.add(text)
    (file,) = (tmp_path / "data").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open("a") as damaged:
        damaged.write('"cut\n7\n')
    again = PromptHistory(tmp_path / "data")
    assert [again.older("draft"), again.older(""), again.older(""), again.older("")] == [
        *("\ud800 three", "two\nlines", "one", None)
    ]
    assert [again.newer(), again.newer(), again.newer(), again.newer()] == [
        *("two\nlines", "\ud800 three", "draft", None)
    ]
    for number in range(2 * KEPT + 5):
        again.add(str(number))
    PromptHistory(tmp_path / "data")
    assert len(file.read_text().splitlines()) == KEPT, "it does not grow for ever"
    assert PromptHistory(None).older("") is None
    assert PromptHistory(file).older("") is None, "no folder"


def test_files_are_sent_along_with_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("a\n````\nb\n")
    Path("with space.txt").write_text("c")
    Path("picture.png").write_bytes(b"\x89PNG\xff")
    Path("large.txt").write_text("x" * (LIMIT_BYTES + 1))
    Path("nul.txt").write_text("a\0b")
    Path("empty").mkdir()
    Path("damaged.pdf").write_bytes(pdf("x")[:90])
    Path("blank.pdf").write_bytes(pdf(""))
    Path("hard.pdf").write_bytes(pdf(r"\240"))  # a blank at which no line is broken
    assert with_files("sum up @notes.md please") == (
        "notes.md:\n`````\na\n````\nb\n`````\n\nsum up notes.md please"
    )
    assert with_files('@"with space.txt" @notes.md').endswith("\n\nwith space.txt notes.md")
    for typed, sent in (
        ('Compare them. @"with space.txt" @notes.md', "Compare them."),
        ("Was ist das? @notes.md ", "Was ist das?"),
        ("这是什么？ @notes.md", "这是什么？"),
        ("Compare @notes.md & @notes.md", "Compare notes.md & notes.md"),
        ("In C# @notes.md", "In C# notes.md"),
        ("Into German: @notes.md; into French: @notes.md", "Into German: notes.md; into French: notes.md"),
        ("Which is longer? 1) @notes.md 2) @notes.md", "Which is longer? 1) notes.md 2) notes.md"),
        ("See them. @notes.md, @notes.md", "See them. notes.md, notes.md"),
        ("Look. @notes.md @anna", "Look. notes.md @anna"),
        ("Look @notes.md. @anna  ", "Look notes.md. @anna  "),
    ):
        assert with_files(typed).endswith(f"\n\n{sent}")
    assert title_of(with_files('@"with space.txt" @notes.md\nsum up')) == "with space.txt notes.md sum up"
    assert title_of("Mend this:\n```\ncode\n```\n\nIt fails.").startswith("Mend this:"), "that was typed"
    assert with_files("mail a@b.org, @anna, @@notes.md @") == "mail a@b.org, @anna, @notes.md @"
    for text, words in (
        ("@picture.png", "no UTF-8 text"),
        ("@large.txt", "too large"),
        ("@nul.txt", "NUL"),
        ("@missing.txt", "There is no file"),
        ("@/dev/null", "is no file"),
        ("@empty/", "no text"),
        ("@damaged.pdf", "cannot be read as PDF"),
        ("@blank.pdf", "holds no text"),
        ("@hard.pdf", "holds no text"),
        ("see @https://example.org/a.html", "opens no network"),
    ):
        with pytest.raises(UsageError, match=words):
            with_files(text)


def test_pasted_code_is_text_and_a_file_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = """
@functools.cache
@app.get('/items')
@app.patch("/items/a.json", tags=["x.py"])
@notes.py("a")
@types/node
@pytest.mark.parametrize(
@org.junit.Test @Override @media @... @example.com @(x)
"""
    assert with_files(code) == code
    Path("types").mkdir()
    Path("types/node").write_text("Here.")
    assert with_files("Look at @types/node").endswith("Here.\n```\n\nLook at types/node")
    for name in (
        *(
            "notse.txt",
            "Paper.PDF",
            "a/notes.md",
            "/types/node",
            "~/nowhere",
            "~nobody/x",
            "./node",
            "../node",
        ),
        *(".notes", "foldr/", "notse.txt?", '"my notes.txt"'),
    ):
        with pytest.raises(UsageError, match="There is no file"):
            with_files(f"Look at @{name}")


def test_a_folder_and_a_pdf_are_sent_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("book/.git", "book/part two"):
        Path(name).mkdir(parents=True)
    Path("book/one.txt").write_text("é" * 3000)  # a letter is cut where its beginning ends
    Path("book/part two/paper.pdf").write_bytes(pdf("The key lies below the third flowerpot."))
    Path("book/cover.png").write_bytes(b"\x89PNG\xff")
    Path("book/.git/config").write_text("hidden")
    Path("book/again.txt").symlink_to("one.txt")
    Path("book/late.log").write_bytes(b"x" * 5000 + b"\xff")
    Path(os.fsdecode(b"book/n\xe4me\n.txt")).write_text("odd name")
    Path("pypdf.py").write_text("raise SystemExit(7)")  # a stranger's folder runs nothing
    said = with_files("Where is the key? @book")
    assert "\n\nbook/one.txt:\n```\néé" in said
    assert with_files("What is in @book/one.txt? And @book?").endswith("What is in book/one.txt? And book?")
    assert "book/part two/paper.pdf:\n```\nThe key lies below the third flowerpot.\n```" in said
    assert said.endswith("\n\nWhere is the key?")
    assert "book/n\ufffdme↵.txt:\n```\nodd name" in said
    assert said.count(":\n```\n") == 3


def test_a_folder_that_does_not_answer_keeps_no_key_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and folders that a person names are read in threads."""
    (tmp_path / "notes.md").touch()
    answers, asked, listed = threading.Event(), list[Path](), Path.iterdir

    def late(folder: Path) -> Any:
        asked.append(folder)
        answers.wait(60)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", late)
    began = time.monotonic()
    for _ in range(20):
        assert completion_menu.choices(f"@{tmp_path}/", []) == []
    assert time.monotonic() - began < 20
    assert len(asked) == 1, "it is not asked again before it has answered"
    answers.set()
    completion_menu._unanswered[f"{tmp_path}/"].join()
    assert [one.label for one in completion_menu.choices(f"@{tmp_path}/", [])] == ["notes.md"]


async def test_a_file_is_sent_along_and_what_cannot_be_sent_stands_in_the_box(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("Trains run.")
    async with drive("stories3m") as screen:
        await screen.ask("read @missing.md ")
        await screen.until(lambda: "There is no file" in screen.bodies()[-1], "it is said")
        await screen.until(lambda: screen.app.prompt.text == "read @missing.md ", "the text is back")
        await screen.ask("read @notes.md ")
        await screen.until(lambda: screen.chat.messages and not screen.app.busy, "it is answered")
        assert screen.chat.messages[0].text == "notes.md:\n```\nTrains run.\n```\n\nread notes.md "


def test_a_file_that_may_not_be_looked_at_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may be listed but not entered, or its path is too long, as here: root may enter."""
    monkeypatch.chdir(tmp_path)
    Path("book").mkdir()
    Path("book/one.txt").write_text("There.")
    monkeypatch.chdir("book")
    for _ in range(16):
        Path("d" * 240).mkdir()
        monkeypatch.chdir("d" * 240)
    Path("f" * 250).write_text("Out of reach.")
    monkeypatch.chdir(tmp_path)
    assert with_files("Look. @book") == "book/one.txt:\n```\nThere.\n```\n\nLook."


@pytest.mark.parametrize(("python", "why"), [("/gone", "No such file"), (None, "TypeError")])
async def test_a_text_comes_back_whatever_prevents_reading_its_files(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str | None, why: str
) -> None:
    """Python may not know where it is: None. The text was sent without its file."""
    monkeypatch.chdir(tmp_path)
    Path("paper.pdf").write_bytes(pdf("x"))
    async with drive("stories3m") as screen:
        monkeypatch.setattr(sys, "executable", python)
        await screen.ask("read @paper.pdf ")
        await screen.until(lambda: why in screen.bodies()[-1], "it is said")
        await screen.until(lambda: screen.app.prompt.text == "read @paper.pdf ", "the text is back")
        assert screen.chat.messages == []


def test_a_pdf_that_takes_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty thousand pages that are one and the same, large one: a small file."""
    monkeypatch.setattr(attached, "PDF_LIMIT_S", 1.0)
    heavy = pdf("x) Tj (" * 20_000).replace(
        b"/Kids [3 0 R] /Count 1", b"/Kids [" + b"3 0 R " * 50_000 + b"] /Count 50000"
    )
    (tmp_path / "heavy.pdf").write_bytes(heavy)
    with pytest.raises(UsageError, match="takes longer than"):
        with_files(f"@{tmp_path}/heavy.pdf")


def pdf(text: str) -> bytes:
    """A PDF file of one page."""
    shown = b"BT /F1 12 Tf 72 720 Td (" + text.encode() + b") Tj ET"
    parts = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(shown), shown),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    raw, at = b"%PDF-1.4\n", list[int]()
    for number, part in enumerate(parts, 1):
        at.append(len(raw))
        raw += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % one for one in at)
    end = b"xref\n0 6\n0000000000 65535 f \n" + table + b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n"
    return raw + end % len(raw) + b"%%EOF\n"


def test_the_editor_of_the_person(tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\ncat "$2" > "$2.new"; echo " $1" >> "$2.new"; mv "$2.new" "$2"\n')
    editor.chmod(0o700)
    environment = dict(os.environ) | {"EDITOR": f"'{editor}' --wait", "VISUAL": ""}
    assert edited("text\n", environment) == "text\n --wait"
    with pytest.raises(H2OChatError, match="ended with 1"):
        edited("text", environment | {"EDITOR": "false"})
    with pytest.raises(UsageError, match="cannot be started"):
        edited("text", environment | {"EDITOR": str(tmp_path / "none")})
    with pytest.raises(UsageError, match="No closing quotation"):
        edited("text", environment | {"EDITOR": "'"})


async def test_the_text_stays_where_there_is_no_room_for_an_editor(
    stored: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stored() as screen:
        monkeypatch.setattr(screen.app, "suspend", nullcontext)  # there is no terminal here
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        await screen.pilot.press(*"a text", "ctrl+g")
        told = screen.app._notifications
        await screen.until(lambda: any("No such file" in one.message for one in told), "it says so")
        assert screen.app.prompt.text == "a text"


async def test_a_message_that_is_not_shown_any_more_is_copied(
    stored: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stored() as screen:
        await screen.say("I am Flora.", "Do you like films?")
        monkeypatch.setattr(pane, "SHOWN_MESSAGES", 2)
        screen.app.pane.on_opened(screen.chat)
        assert screen.said("2 earlier messages are not shown")
        await screen.ask("/copy 1")
        assert screen.app.clipboard == "I am Flora."
        assert "copied #1" in screen.app.divider.remark


async def test_another_model_and_one_that_is_not_there(switching: Drive, shared_models: Path) -> None:
    async with switching(str(shared_models / "stories3m")) as screen:
        app = screen.app
        await screen.opened()
        await screen.ask("/model")
        await screen.until(lambda: "comes with" in screen.page(), "what is here is listed")
        assert "to fetch" not in screen.page()
        await screen.pilot.press(*"llama-7")
        await screen.until(lambda: "to fetch" in screen.page(), "typing finds the others")
        await screen.pilot.press("escape")
        await screen.say("Once")
        assert "no-such-model" in await screen.say("/model no-such-model")
        await screen.ask("/model")
        await screen.pilot.press(*"stories3m", "enter")
        await screen.until(lambda: len(app.screen_stack) == 1, "it is chosen")
        assert "open already" in app.divider.remark
        assert len(screen.chat.messages) == 2, "the app stays as it was"
        await screen.ask(f"/model {shared_models / 'stories260k'}")
        await screen.until(lambda: "stories260k" in screen.chat.session.model, "the other is open")
        await screen.answered()
        assert screen.chat.messages == []
        assert "ctrl+o opens it" in screen.bodies()[-1], "the conversation before"
        assert "up brings back" in screen.bodies()[-1]
        while app.prompt.text != "Once":
            await screen.pilot.press("up")
        await screen.pilot.press("enter")
        await screen.until(lambda: len(screen.chat.messages) == 2, "the other one is asked the same")
        await screen.answered()
        assert screen.own() == ["Once"]
        _, before = screen.chat.keeper.store.list()
        await screen.ask("/model")
        await screen.until(lambda: "comes with" in screen.page(), "what is here is listed")
        text = screen.page()
        assert -1 < text.find("/stories260k") < text.find("/stories3m"), "those used last come first"
        await screen.pilot.press("escape")
        await screen.ask(f"/open {before.id}")
        await screen.until(lambda: "stories3m" in screen.chat.session.model, "its model is opened for it")
        await screen.answered()
        assert screen.chat.keeper.conversation == before.id
        assert screen.chat.messages[0].text == "Once"
        await screen.say("upon a time")
        assert len(screen.chat.messages) == 4


async def test_another_model_where_nothing_is_stored(switching: Drive, shared_models: Path) -> None:
    """It was said that the conversation before is kept, and ctrl+o showed an empty list."""
    models = [str(shared_models / name) for name in ("stories3m", "stories260k")]

    async with switching(models[0], stores=False, system="Be kind.") as screen:

        async def to(model: str) -> None:
            before = screen.chat
            await screen.ask(f"/model {model}")
            await screen.until(lambda: screen.chat is not before, "the other is open")
            await screen.answered()

        await screen.opened()
        await to(models[1])
        assert not screen.said("The conversation before"), "nothing was said in it"
        await screen.say("Once")
        await to(models[0])
        assert "is gone" in screen.bodies()[-1]
        assert "ctrl+o" not in screen.bodies()[-1]
        assert screen.chat.keeper.store.list() == []


async def test_a_word_that_is_typed_out_is_sent_though_another_begins_with_it(drive: Drive) -> None:
    """`/policy h2o` and enter took `h2o-paper` from the menu, and sent nothing."""
    async with drive("pilot-chat", SMALL) as screen:
        await screen.pilot.press(*"/policy", "space", *"window")
        await screen.pilot.press("enter")
        await screen.answered()
        assert screen.app.chat.settings.policy == "window"
        await screen.pilot.press(*"/policy", "space", *"h2o")
        await screen.pilot.press("enter")
        await screen.answered()
        assert (screen.app.chat.settings.policy, screen.app.prompt.text) == ("h2o", "")


async def test_another_model_is_sampled_as_its_own_makers_recommend(
    switching: Drive, shared_models: Path
) -> None:
    """But for what a person has named."""
    given = Sampling(top_p=0.5, max_tokens=5)
    async with switching(str(shared_models / "stories260k"), given, named={"top_p"}) as screen:
        await screen.opened()
        drawn = Sampling(temperature=0.7, top_p=0.5, min_p=0.05, max_tokens=5)
        assert screen.app.pane.sampling == drawn, "stories260k says nothing"
        await screen.say("/set min_p 0.2")
        await screen.ask("/model pocket")
        await screen.until(lambda: screen.chat.session.model == "pocket", "the other one is open")
        drawn = Sampling(temperature=0.0, top_p=0.5, min_p=0.2, max_tokens=5)
        assert screen.app.pane.sampling == drawn
