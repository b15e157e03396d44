"""What the slash commands do, and the keys that do the same, by name; `slash.py` has their help."""

from collections.abc import Mapping

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.files import export_chat
from h2o_chat.chat.memory.why import why as why_of
from h2o_chat.tui.glyphs import percent, size
from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.prompt import applying, elsewhere, going_back, pinning
from h2o_chat.tui.prompt.chosen import message_index
from h2o_chat.tui.prompt.talk_pane import Act, TalkPane
from h2o_chat.tui.transcript.markdown import code_blocks

AXES_IN_WORDS = {
    None: "what suits the length",
    "linear": "every cell as many tokens",
    "turns": "every message as many cells",
    "age": "the newest tokens one by one",
}


def show_help(pane: TalkPane, _: str) -> None:
    pane.app.action_help()  # type: ignore[attr-defined]


def stats(pane: TalkPane, _: str) -> None:
    memory = pane.memory
    if memory.session is None or memory.cache is None:
        raise UsageError("Nothing was seen yet.")
    cache, session = memory.cache, memory.session
    kinds = ", ".join(
        f"{cache.kinds.get(kind, 0):,} {name}"
        for kind, name in (("S", "protected"), ("H", "heavy"), ("R", "recent"))
    )
    of = "" if session.budget is None else f" of {session.budget:,} slots"
    full = f"a full cache would hold {size(cache.bytes_full)}"
    if cache.bytes > cache.bytes_full:
        full = f"all set aside at once; {full} so far"
    lines = [
        f"{session.model} · {session.policy} · {session.layers} layers x {session.kv_heads} KV heads",
        f"seen {cache.seen:,} tokens, kept {cache.kept:,}{of}: {kinds}",
        f"{size(cache.bytes)} of keys and values; {full}",
        f"lost {percent(cache.lost)} of the attention per token, lately",
    ]
    if memory.tok_s is not None:
        lines.append(f"{memory.tok_s:.1f} tokens a second")
    pane.transcript.messages.note("\n".join(lines))


def why(pane: TalkPane, words: str) -> None:
    if pane.chat is None or not words:
        raise UsageError("Which word?", "/why WORD or /why @POSITION")
    pane.transcript.messages.note("\n".join(why_of(pane.memory, words)))


def find(pane: TalkPane, words: str) -> None:
    if not words:
        raise UsageError("Find what?", "/find WORDS; ctrl+o looks through all stored conversations.")
    pane.find_bar.open(words)


def copy(pane: TalkPane, words: str) -> None:
    messages = pane.idle().messages
    if any(character.isdecimal() for character in words):
        index = message_index(pane, words)
    elif words not in ("", "code"):
        raise UsageError(f"{words!r} is nothing to copy.", "/copy, /copy code or /copy NUMBER")
    else:
        index = max((n for n, one in enumerate(messages) if one.role == "assistant"), default=-1)
    view = pane.transcript.messages.by_index.get(index)
    text = view.said if view is not None else ""
    if not text:
        raise UsageError("There is nothing to copy.", "/copy, /copy code or /copy NUMBER")
    if words != "code":
        pane.copy(text, numbered(index))
    elif blocks := code_blocks(text):
        pane.copy(blocks[-1], "the last code block")
    else:
        raise UsageError("The last answer has no code block.")


def export(pane: TalkPane, words: str) -> None:
    path = export_chat.export(pane.idle(), words)
    pane.transcript.messages.note(f"Wrote {path}")


def next_axis(pane: TalkPane, _: str) -> None:
    strip = pane.app.query_one(RememberStrip)
    strip.next_axis()
    pane.divider.say(f"strip: {AXES_IN_WORDS[strip.axis]}")


def theme(pane: TalkPane, words: str) -> None:
    themes = pane.app.available_themes
    if not words:
        pane.app.action_change_theme()
        return
    if words not in themes:
        raise UsageError(f"There is no theme {words!r}.", f"One of: {', '.join(sorted(themes))}.")
    pane.app.theme = words


def recall(pane: TalkPane, words: str) -> None:
    talk = pane.idle()
    pane.noted(talk.recall.by_hand(words, talk.messages, talk.session.budget))


def pin_chosen(pane: TalkPane, _: str) -> None:
    """Protect the chosen message, or let it go."""
    view = pane.transcript.choice.view
    if view is not None:
        (pinning.unpin if view.pinned else pinning.pin)(pane, "")


ACTS: Mapping[str, Act] = {
    "help": show_help,
    "new": elsewhere.new,
    "open": elsewhere.conversations,
    "system": elsewhere.system,
    "set": applying.change,
    "policy": applying.short("policy"),
    "budget": applying.short("budget"),
    "model": elsewhere.model,
    "stats": stats,
    "pin": pinning.pin,
    "unpin": pinning.unpin,
    "recall": recall,
    "why": why,
    "find": find,
    "copy": copy,
    "export": export,
    "regenerate": going_back.regenerate,
    "edit": going_back.edit,
    "branch": going_back.branch,
    "axis": next_axis,
    "theme": theme,
    "editor": lambda pane, _: pane.prompt.action_editor(),
    "quit": lambda pane, _: pane.app.exit(),
    # keys alone
    "edit chosen": going_back.edit_chosen,
    "edit last": going_back.edit_last,
    "pin chosen": pin_chosen,
}
