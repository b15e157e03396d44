"""Folding, thoughts, finding and copying, in the real transcript."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from screens import SESSION, Drive
from test_transcript import _page, transcript_of

from h2o_chat.base.config import Sampling
from h2o_chat.chat.conversation.spans import Span
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.tokens import Tokens
from h2o_chat.events.events import CacheState, Prompt
from h2o_chat.tui.transcript.heat import fold_line
from h2o_chat.tui.transcript.message_body import fold_at, unfold_at
from h2o_chat.tui.transcript.message_view import THINKING

LONG = "".join(f"line {n} of many\n" for n in range(60))


@given(st.lists(st.text("ab é🦊", max_size=4), min_size=1), st.data())
def test_every_character_belongs_to_tokens(texts: list[str], data: st.DataObject) -> None:
    """Compared with counting, one by one."""
    tokens = Tokens(7, texts[:1])
    for text in texts[1:]:
        tokens.add(text)
    whole = "".join(texts)
    completes = [at for at, text in enumerate(texts) for _ in text]
    assert tokens.text == whole
    assert len(tokens) == len(texts)
    assert [tokens.at(n) for n in range(len(whole))] == [7 + at for at in completes]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    groups = list(tokens.groups(start, end))
    assert "".join(whole[first:last] for first, last, _ in groups) == whole[start:end]
    for first, last, positions in groups:
        assert {7 + completes[n] for n in range(first, last)} == {positions[-1]}
        assert not any(texts[at - 7] for at in positions[:-1])
        assert positions[0] == 7 or texts[positions[0] - 8]
        assert all(tokens.span(at) == tokens.span(positions[-1]) for at in positions)


@given(st.text("a \n", max_size=4000))
def test_a_fold_is_within_the_text_and_shows_some_of_it(text: str) -> None:
    at = fold_at(text)
    assert 0 <= at <= len(text)
    if at < len(text):
        assert at > 0
        assert text[:at].count("\n") + at // 80 <= 9
        assert at < unfold_at(text) <= len(text)


def test_thoughts_are_divided_from_answers() -> None:
    divide = THINKING.divide
    assert divide("<think>\nhm\n</think>\n\nYes.") == ("hm", "Yes.")
    assert replace(THINKING, opened_tokens=1).divide("hm</think>Yes.") == ("hm", "Yes.")
    assert divide("<think>hm") == ("hm", "")
    assert divide("<thi", growing=True) == (None, "")
    assert divide("<thi") == (None, "<thi")
    assert divide("<this>") == (None, "<this>")
    assert divide("Say <think>a</think>.") == (None, "Say <think>a</think>.")
    assert divide("") == (None, "")


async def test_long_messages_are_folded_and_say_what_is_held() -> None:
    async with transcript_of() as (transcript, pilot):
        tokens = Tokens(10, LONG.splitlines(keepends=True))
        memory: CacheView = transcript.heat.memory
        memory.begin(SESSION, None)
        memory.spans.append(Span(0, "user", 10, 69))
        held = [(at, 0.5, 1.0) for at in range(40, 70)]
        memory.add(CacheState(80, 64, 1, 1, 0, {}, [], held, []))
        memory.words.tokens[0] = tokens
        transcript.messages.message("user", "you", LONG, 0)
        transcript.messages.message("assistant", "model", LONG, 1)
        transcript.messages.unfold_last()
        await pilot.pause()
        user, answer = transcript.messages.views
        assert user.folded
        assert not answer.folded
        transcript.window.go_to(user)
        await pilot.pause()
        page = _page(transcript)
        shown = [row.strip() for row in page if row.strip().startswith("line")]
        assert shown[:8] == [f"line {n} of many" for n in range(8)]
        [line] = [row.strip() for row in page if "folded" in row]
        assert line == f"… ⋮ 52 tokens folded · {round(15 / 52 * 8)} of 8 heads · a click unfolds"
        transcript.focus()
        await pilot.press("z")
        assert not user.folded
        assert not any("folded" in row for row in _page(transcript))
        await pilot.press("z")
        assert user.folded
        x, y = next((row.index("⋮"), n) for n, row in enumerate(_page(transcript)) if "folded" in row)
        await pilot.click(offset=(x, y))
        assert not user.folded
        transcript.messages.open_answer("model", 2)  # the answer that was read is out of the way
        assert answer.folded
        assert not user.folded  # somebody wanted to see it


async def test_a_question_behind_a_file_is_seen_below_the_fold() -> None:
    async with transcript_of() as (transcript, pilot):
        messages = transcript.messages
        file = f"notes.md:\n```\n{LONG}```"
        asked = f"{file}\n\nWhich line is the last one?\nAnd the first?"
        messages.message("user", "you", asked, 0)
        messages.message("user", "you", LONG, 1)
        await pilot.pause()
        first, second = messages.views
        for raw in (False, True):
            first.tokens, first.raw = Tokens(10, asked.splitlines(keepends=True)), raw
            first.changed()
            head, _, question = first.plain.partition("…")
            assert file.startswith(head.strip())
            assert question.strip() == "Which line is the last one?\nAnd the first?"
        assert "56 tokens folded" in fold_line(first, transcript.heat)
        assert second.plain.endswith("…")
        messages.message("assistant", "model", asked, 2)
        assert messages.views[2].plain.endswith("…")


async def test_thoughts_are_folded_while_they_stream_and_after() -> None:
    async with transcript_of() as (transcript, pilot):
        transcript.messages.open_answer("model", 0)
        text = "<think>\nfirst this,\nthen that\n</think>\n\nThe *answer*."
        for character in text[:30]:
            transcript.messages.stream(character)
        await pilot.pause()
        assert any("▸ thinking · 4 words" in row for row in _page(transcript))
        assert not any("first this" in row for row in _page(transcript))
        for character in text[30:]:
            transcript.messages.stream(character)
        transcript.messages.close_answer("eos", text)
        await pilot.pause()
        [answer] = transcript.messages.views
        assert answer.plain == "▸ thought · 4 words · a click shows it\n\nThe answer."
        transcript.focus()
        await pilot.press("t")
        assert "first this,\nthen that" in answer.plain
        await pilot.press("t")
        assert "first this" not in answer.plain
        await pilot.click(
            offset=(4, 1 + next(n for n, row in enumerate(_page(transcript)) if "model" in row))
        )
        assert "first this,\nthen that" in answer.plain
        await pilot.press("t")
        assert transcript.chosen_text() == "The *answer*."


async def test_a_thought_that_the_template_opens_is_told_from_its_answer() -> None:
    """An opened conversation shows it so, and an answer whose prompt tells no texts of its tokens, too."""
    async with transcript_of() as (transcript, _):
        messages, told = transcript.messages, replace(SESSION, thought=["<think>", "</think>", ""])
        transcript.heat.memory.session = replace(told, opened_tokens=2)
        messages.message("assistant", "model", "hm\n</think>\n\nYes.", 0, "eos")
        messages.message("assistant", "model", "hm", 1, "length")
        messages.message("assistant", "model", "No.", 2, "eos")  # imported, of another model
        messages.open_answer("model", 3)
        messages.read(Prompt(70_000, 0, 69_999, 1, 1.0))
        for text in ("hm\n", "</think>\n\n", "Yes."):
            messages.stream(text)
        found = [(view.thought, view.said) for view in messages.views]
        assert found == [("hm", "Yes."), ("hm", ""), (None, "No."), ("hm", "Yes.")]
        transcript.heat.memory.session = told  # as an old recording has it
        messages.open_answer("model", 4)
        messages.read(Prompt(2, 0, 1, 1, 1.0, texts=["<think>", "\n"]))
        messages.stream("hm</think>Yes.")
        assert messages.views[-1].thought == "hm"


async def test_words_are_found_from_the_last_to_the_first() -> None:
    async with transcript_of(80, 20) as (transcript, pilot):
        for n in range(30):
            transcript.messages.message("user", "you", f"question {n}", 2 * n)
            transcript.messages.message(
                "assistant", "model", f"the **Key** is {n}\n\n" + "words " * 99, 2 * n + 1
            )
        transcript.messages.message("user", "you", LONG + "a key at the end", 60)
        await pilot.pause()
        assert transcript.find("KEY") == "31 of 31"  # folded ones too
        await pilot.pause()
        assert any("a key at the end" in row for row in _page(transcript))
        assert transcript.find("KEY") == "30 of 31"
        await pilot.pause()
        assert any("the Key is 29" in row for row in _page(transcript))
        assert transcript.find("KEY", 1) == "31 of 31"
        assert transcript.find("KEY", 1) == "1 of 31"
        await pilot.pause()
        assert any("the Key is 0" in row for row in _page(transcript))
        strips = transcript.screen._compositor.render_strips()
        marked = [segment for strip in strips for segment in strip if segment.text == "Key"]
        assert any(segment.style and segment.style.underline for segment in marked)
        assert transcript.find("[/b] nowhere") == "nothing found"
        assert transcript.find("") == ""


async def test_keys_find_and_copy_in_the_app(drive: Drive) -> None:
    async with drive("pilot-chat", sampling=Sampling(max_tokens=16)) as screen:
        await screen.say("Take this:\n```py\nx = 1\n```\nand\n```\ny\n```")
        await screen.pilot.press("ctrl+f", *"take")
        await screen.until(lambda: "1 of " in screen.page(), "it is found")
        await screen.pilot.press("escape")
        assert screen.app.prompt.has_focus
        await screen.pilot.press("tab", "up", "up", "c")
        assert screen.app.clipboard == screen.chat.messages[0].text
        assert "copied the message" in screen.app.divider.remark
        for code in ("x = 1\n", "y\n", "x = 1\n"):
            await screen.pilot.press("k")
            assert screen.app.clipboard == code
        await screen.pilot.press("down", "c")
        assert screen.app.clipboard == screen.chat.messages[1].text
        await screen.pilot.press("k")
        assert "no code" in screen.app.divider.remark
