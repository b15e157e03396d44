"""What the slash commands do, each with the pane and what stands behind the name; `slash.py` names them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.export import FORMATS, file_name, to_html, write_file
from h2o_chat.tui.glyphs import percent, size
from h2o_chat.tui.talk import changing
from h2o_chat.tui.transcript.markdown import code_blocks
from h2o_chat.tui.transcript.why import MOST, positions_of
from h2o_chat.tui.transcript.why import why as why_of

if TYPE_CHECKING:
    from h2o_chat.tui.talk.talk import TalkPane


def show_help(pane: "TalkPane", _: str) -> None:
    pane.app.action_help()  # type: ignore[attr-defined]


def system(pane: "TalkPane", words: str) -> None:
    talk = pane.idle()
    if words:
        pane.begin_anew(words)
        return
    now = talk.settings.system
    pane.transcript.messages.note(f"The system prompt: {now}" if now else "There is no system prompt.")


def short(name: str) -> Callable[["TalkPane", str], None]:
    """`/name VALUE` for `/set name VALUE`."""
    return lambda pane, words: change(pane, f"{name} {words}")


def change(pane: "TalkPane", words: str) -> None:
    name, _, value = words.partition(" ")
    name, value = name.replace("-", "_"), value.strip()
    if not name:
        pane.action_settings()
    elif value:
        changing.change(pane, {name: changing.read(name, value)})
    elif name in changing.SETTABLE:
        pane.transcript.messages.note(f"{name} = {changing.shown(changing.values(pane)[name])}")
    else:
        changing.read(name, value)


def stats(pane: "TalkPane", _: str) -> None:
    memory = pane.memory
    if memory.session is None or memory.cache is None:
        raise UsageError("Nothing was seen yet.")
    cache, session = memory.cache, memory.session
    kinds = ", ".join(
        f"{cache.kinds.get(kind, 0):,} {name}"
        for kind, name in (("S", "protected"), ("H", "heavy"), ("R", "recent"))
    )
    of = "" if session.budget is None else f" of {session.budget:,} slots"
    lines = [
        f"{session.model} · {session.policy} · {session.layers} layers x {session.kv_heads} KV heads",
        f"seen {cache.seen:,} tokens, kept {cache.kept:,}{of}: {kinds}",
        f"{size(cache.bytes)} of keys and values; a full cache would hold {size(cache.bytes_full)}",
        f"lost {percent(cache.lost)} of the attention per token, lately",
    ]
    if memory.tok_s is not None:
        lines.append(f"{memory.tok_s:.1f} tokens a second")
    pane.transcript.messages.note("\n".join(lines))


def pin(pane: "TalkPane", words: str) -> None:
    if words == "next" or (not words and pane.transcript.selected is None):
        pane.pin_next(not pane.pins_next or words == "next")
    else:
        pane.pin(_message(pane, words), True)


def unpin(pane: "TalkPane", words: str) -> None:
    if not words and pane.transcript.selected is None and pane.pins_next:
        pane.pin_next(False)
        return
    if not words and pane.transcript.selected is None:
        pinned = [number for number, one in enumerate(pane.idle().messages) if one.pinned]
        if len(pinned) == 1:
            words = str(pinned[0])
        else:
            listed = ", ".join(map(str, pinned)) or "none"
            raise UsageError("Which message?", f"/unpin NUMBER; pinned are: {listed}.")
    pane.pin(_message(pane, words), False)


def _message(pane: "TalkPane", words: str) -> int:
    """A message by its number, from 0 on, or the one that is chosen."""
    if not words:
        assert pane.transcript.selected is not None
        return pane.transcript.selected
    if not re.fullmatch(r"\d{1,9}", words):
        raise UsageError(f"{words!r} is no number of a message.", "They are counted from 0, the oldest.")
    return int(words)


def why(pane: "TalkPane", words: str) -> None:
    if pane.chat is None or not words:
        raise UsageError("Which token?", "/why WORD or /why @POSITION")
    text_of = pane.transcript.messages.token_text
    found = positions_of(pane.memory, text_of, words)
    if not found:
        raise UsageError(
            f"{words!r} is in no cache, nor among the last tokens that went.",
            "Either it was never said, or it went long ago; /why @POSITION tells of any token.",
        )
    lines = [why_of(pane.memory, position, text_of) for position in found[:MOST]]
    pane.transcript.messages.note("\n".join(lines))


def find(pane: "TalkPane", words: str) -> None:
    if not words:
        raise UsageError("Find what?", "/find WORDS; ctrl+o looks through all stored conversations.")
    pane.find_bar.open(words)


def copy(pane: "TalkPane", words: str) -> None:
    messages = pane.idle().messages
    if re.fullmatch(r"\d{1,9}", words):
        number = int(words)
    elif words in ("", "code"):
        number = max((n for n, one in enumerate(messages) if one.role == "assistant"), default=-1)
    else:
        raise UsageError(f"{words!r} is nothing to copy.", "/copy, /copy code or /copy NUMBER")
    text = pane.transcript.text_of(number)
    if not text:
        raise UsageError("There is nothing to copy.", "/copy, /copy code or /copy NUMBER")
    if words != "code":
        pane.copy(text, f"message {number}")
    elif blocks := code_blocks(text):
        pane.copy(blocks[-1], "the last code block")
    else:
        raise UsageError("The last answer has no code block.")


def export(pane: "TalkPane", words: str) -> None:
    rest, _, last = words.rpartition(" ")
    force = last == "--force"  # a word of its own: `notes--force` is the name of a file
    kind, _, name = (rest if force else words).strip().partition(" ")
    if kind not in FORMATS:
        raise UsageError(f"{kind!r} is no format." if kind else "As what?", "/export md, json or html [FILE]")
    talk = pane.idle()
    conversation = talk.whole()
    text = to_html(conversation, talk.heat()) if kind == "html" else FORMATS[kind](conversation)
    try:
        path = Path(name.strip()).expanduser() if name.strip() else Path()
    except RuntimeError as error:  # ~nobody
        raise UsageError(f"There is no such folder: {error}") from error
    if path.is_dir():
        path = path / file_name(conversation, kind)
    write_file(path, text, force)
    pane.transcript.messages.note(f"Wrote {path.resolve()}")


def model(pane: "TalkPane", words: str) -> None:
    if words:
        pane.open_model(words)
    else:
        pane.choose_model()


def edit(pane: "TalkPane", words: str) -> None:
    pane.edit_message(_message(pane, words) if words else pane.transcript.selected)


def branch(pane: "TalkPane", words: str) -> None:
    pane.idle()
    pane.go_to_branch(_message(pane, words) if words else pane.transcript.selected)


def theme(pane: "TalkPane", words: str) -> None:
    themes = pane.app.available_themes
    if not words:
        pane.app.action_change_theme()
        return
    if words not in themes:
        raise UsageError(f"There is no theme {words!r}.", f"One of: {', '.join(sorted(themes))}.")
    pane.app.theme = words
