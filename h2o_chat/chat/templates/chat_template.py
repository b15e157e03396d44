"""The tokens of a turn: what the chat template adds to a conversation.

A later turn is rendered on a fixed base conversation, [user, assistant, user], and cut after the assistant's
words: the rest closes the last answer, holds the user's text and opens the next answer. The cost does not
grow with the history, and templates that rewrite history (Qwen3 drops old thinking) do not matter.

Text cannot forge a turn: what a user types never becomes one of the tokens that mark turns. (Where a family
marks turns by plain words, as Llama 2 does with [INST], no tokenizer can tell them from a user's.)
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.chat.templates.base_templates import BASE_TEMPLATES
from h2o_chat.chat.templates.rendering import TemplateFailed, render
from h2o_chat.chat.templates.thinking import Thinking, switches, thinking_of
from h2o_chat.models.tokenizer_calls import start_of, tokens_of

PIECE_CHARACTERS = 16 << 10
"""A longer text is tokenised in pieces, each in at most 0.1 s; its template gets a word in its place."""
after_piece: ContextVar[Callable[[int], None]] = ContextVar("after_piece", default=lambda tokens: None)
"""Called in this thread after each piece with the tokens so far; what it raises ends the work."""


@dataclass(frozen=True)
class TurnTokens:
    """The tokens of a turn as they are fed."""

    ids: list[int]
    tokens_before_text: int
    """Number of tokens before the user's own text: the system prompt, or the end of the last answer."""

    def after(self, pending: Sequence[int], ends: Collection[int]) -> list[int]:
        """The ids behind an answer; a closing that its `pending` tokens have already is not said twice."""
        if pending and pending[-1] in ends and pending[-1] in self.ids[: self.tokens_before_text]:
            return self.ids[self.ids.index(pending[-1]) + 1 :]
        return self.ids


def choose(tokenizer: Any, wanted: str, think: str = "auto") -> "Template":
    """The model's own template where it has one and no other is wanted; else a named or the plain one.

    Raises UsageError if it has no such switch of its thoughts.
    """
    template: Template = PlainTemplate(tokenizer)
    if wanted in BASE_TEMPLATES:
        template = ModelTemplate(tokenizer, wanted)
    elif wanted == "auto" and tokenizer.chat_template:
        template = ModelTemplate(tokenizer)
    if think == "auto":
        return template
    if think not in (choices := template.thinking.choices):
        known = f"One of: auto, {', '.join(choices)}." if choices else "It has no switch: leave it out."
        raise UsageError(f"think {think}: the model's chat template does not know it.", known)
    return template.thinking_as(think)


class PlainTemplate:
    """Plain continuation, for models that only know text: their start token, if any, then the words.

    Its methods are those of `ModelTemplate`.
    """

    name = "plain"
    marker: str | None = None
    opening_tokens = 0
    thinking = Thinking()

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def thinking_as(self, think: str) -> "PlainTemplate":
        return self

    def first(self, system: str | None, text: str, tools: Sequence[Any] = ()) -> TurnTokens:
        head = start_of(self._tokenizer)
        before = "" if system is None else f"{system}\n"
        ids = [*head, *literal(self._tokenizer, before + text)]
        return TurnTokens(ids, _agree(ids, [*head, *literal(self._tokenizer, before)]))

    def later(self, text: str, turn_marker_fed: bool = False) -> TurnTokens:
        return TurnTokens(literal(self._tokenizer, text), 0)

    def results(self, texts: Sequence[str], then: str, turn_marker_fed: bool = False) -> TurnTokens:
        return self.later("\n".join((*texts, then)))


class ModelTemplate:
    """The chat template that comes with the model's tokenizer, or one of BASE_TEMPLATES.

    Attributes:
        name: in the session.
        marker: ends an answer, beside the model's own end.
    """

    def __init__(self, tokenizer: Any, base: str = "", think: str = "auto") -> None:
        self._tokenizer, self._base, self._think = tokenizer, base, think
        self.name = base or "model"
        self.marker = BASE_TEMPLATES[base].marker if base else None

    @cached_property
    def thinking(self) -> Thinking:
        return thinking_of(self)

    def thinking_as(self, think: str) -> "ModelTemplate":
        """The template with its switches set so (`Settings.think`)."""
        return ModelTemplate(self._tokenizer, self._base, think)

    @cached_property
    def opening_tokens(self) -> int:
        """Number of tokens at the end of each turn that open the answer."""
        user = [{"role": "user", "content": "Hello"}]
        opened, closed = (self.tokenized(self.rendered(user, opens=opens)) for opens in (True, False))
        return len(opened) - _agree(opened, closed)

    def first(self, system: str | None, text: str, tools: Sequence[Any] = ()) -> TurnTokens:
        """The tokens of the first turn; `tools` only where the template renders them (`ToolForm.native`)."""
        words = [] if system is None else [("system", system)]
        return self._turn([*words, ("user", text)], tools=tools)

    def later(self, text: str, turn_marker_fed: bool = False) -> TurnTokens:
        """The tokens of a later turn; `turn_marker_fed`: the answer before ended in the marker itself."""
        return self._turn([("user", text)], after_answer=True, turn_marker_fed=turn_marker_fed)

    def results(self, texts: Sequence[str], then: str, turn_marker_fed: bool = False) -> TurnTokens:
        """The tokens of a turn with results of tools and, behind them, what the user says (`then`, perhaps
        empty); where the template renders results."""
        said = [("tool", text) for text in texts] + ([("user", then)] if then else [])
        return self._turn(said, after_answer=True, turn_marker_fed=turn_marker_fed)

    def _turn(
        self,
        said: Sequence[tuple[str, str]],
        after_answer: bool = False,
        turn_marker_fed: bool = False,
        tools: Sequence[Any] = (),
    ) -> TurnTokens:
        """The tokens that the template makes of `said`, (role, text) of each message."""
        texts = [text for _, text in said]
        words = [_word_not_in(texts, f"{role}{number}") for number, (role, _) in enumerate(said)]
        anchor = _word_not_in(texts, "assistant") if after_answer else ""
        roles = [role for role, _ in said]
        placeholders = list(zip(roles, words, strict=True))
        blank = self._render(placeholders, anchor, turn_marker_fed, tools)
        lost = [role for role, word in placeholders if word not in blank]
        if lost:
            hint = "Leave --system out." if lost == ["system"] else "Use --template plain."
            raise UsageError(f"The model's chat template leaves out what the {lost[0]} says.", hint)
        marks = self.marks_in(blank)
        before = blank[: blank.index(words[roles.index("system") + 1 if "system" in roles else 0])]
        contents = dict(zip(words, texts, strict=True))
        if sum(map(len, texts)) <= PIECE_CHARACTERS:
            ids = self.tokenized(self._render(said, anchor, turn_marker_fed, tools), anchor)
            if _is_safe(texts, marks, ids, self.tokenized(blank, anchor)):
                filled = "".join(contents.get(part, part) for part in _split(before, contents))
                return TurnTokens(ids, _agree(ids, self.tokenized(filled, anchor)))
        ids = self._piecewise(blank, contents, marks, anchor)
        return TurnTokens(ids, _agree(ids, self._piecewise(before, contents, marks, anchor)))

    def _render(
        self, said: Sequence[tuple[str, str]], anchor: str, turn_marker_fed: bool, tools: Sequence[Any]
    ) -> str:
        """The conversation as text; with an anchor, the part behind an answer that consists of that word."""
        messages = [{"role": role, "content": text} for role, text in said]
        if anchor:
            earlier = {"role": "user", "content": "Hello"}
            messages = [earlier, {"role": "assistant", "content": anchor}, *messages]
        text = self.rendered(messages, tools)
        parts = text.rsplit(anchor, 1) if anchor else [text]
        if anchor and len(parts) == 1:
            raise ModelError("The model's chat template leaves out its answers.", "Use --template plain.")
        return parts[-1].split(self.marker, 1)[-1] if turn_marker_fed else parts[-1]

    def rendered(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), opens: bool = True
    ) -> str:
        """The text that the template makes of messages; `opens`: with the opening of the next answer.

        Raises:
            UsageError: it does not take the system prompt.
            ModelError: it fails.
        """
        values: dict[str, Any] = {"messages": messages, "tools": tools or None, "documents": None}
        values |= {"add_generation_prompt": opens, **switches(self._think)}
        try:
            return render(self.source, {**self._tokenizer.special_tokens_map, **values})
        except (TemplateFailed, ValueError) as error:  # ValueError: several templates, and no default
            if messages[0]["role"] == "system":
                what = f"The model's chat template does not take this system prompt: {error}"
                raise UsageError(what, "Leave --system out and say it in the first message.") from error
            raise ModelError(f"The model's chat template fails: {error}", "Use --template plain.") from error

    @property
    def source(self) -> str:
        return BASE_TEMPLATES[self._base].jinja if self._base else self._tokenizer.get_chat_template(None)

    def mark_texts(self) -> list[str]:
        return list(self.marks_in(""))

    def marks_in(self, blank: str) -> dict[str, int]:
        """Tokens that no text may become: all special ones, and other marks of turns in the template."""
        added = self._tokenizer.added_tokens_decoder
        special = set(self._tokenizer.all_special_ids)
        return {
            str(token): number
            for number, token in added.items()
            if token.special or number in special or (str(token).strip() and str(token) in blank)
        }

    def tokenized(self, text: str, anchor: str = "") -> list[int]:
        """Ids of rendered text, as it is tokenised behind an answer."""
        return _behind(anchor, text, lambda whole: tokens_of(self._tokenizer, whole))

    def _piecewise(
        self, blank: str, contents: dict[str, str], marks: dict[str, int], anchor: str
    ) -> list[int]:
        """The template's own marks as tokens, all between them with special tokens switched off."""
        ids: list[int] = []
        added = self._tokenizer.added_tokens_decoder
        between, bare = "", False  # The last mark takes in the blanks behind it, like phi3's
        for part in _split(blank, contents):
            if part in contents:
                between += contents[part]
                continue
            for piece in _split(part, marks):
                if piece in marks:
                    between = between.lstrip() if bare else between
                    ids += [*literal(self._tokenizer, between, marks, anchor), marks[piece]]
                    between, anchor, bare = "", "", added[marks[piece]].rstrip
                else:
                    between += piece
        return ids + literal(self._tokenizer, between.lstrip() if bare else between, marks, anchor)


Template = PlainTemplate | ModelTemplate


def literal(tokenizer: Any, text: str, marks: Mapping[str, int] | None = None, behind: str = "") -> list[int]:
    """Ids of text in which special tokens, and marks, are mere characters.

    A long text is tokenised in pieces, each from the space before a word on: no token of a known tokenizer
    reaches over such a place, so the ids are those of the whole. Where half a piece has no space, a token may
    be cut in two. Tokenizers treat the start of a text apart: each piece but the first stands behind a word.

    Args:
        marks: what no text may become, with its ids; where it would, its text is cut in two.
        behind: a word that the text stands behind.

    Raises:
        ModelError: the tokenizer fails.
    """
    numbers = set((marks or {}).values())
    ids: list[int] = []
    for piece in pieces(text):
        before = "x" if ids else behind
        found = _plain_behind(before, piece, tokenizer)
        if not numbers.isdisjoint(found):
            inside = "|".join(
                f"(?<={re.escape(mark[0])})(?={re.escape(mark[1:])})"
                for mark in marks or ()
                if mark[1:] and mark in piece
            )
            first, *others = re.split(inside, piece) if inside else [piece]
            found = _plain_behind(before, first, tokenizer)
            found += [number for part in others for number in _plain_behind("x", part, tokenizer)]
        ids += found
        after_piece.get()(len(ids))
    return ids


def pieces(text: str) -> Iterator[str]:
    """Pieces of at most PIECE_CHARACTERS, each but the first from the space before a word on."""
    begin = 0
    while len(text) - begin > PIECE_CHARACTERS:
        end = begin + PIECE_CHARACTERS
        spaces = (at for at in range(end, end - PIECE_CHARACTERS // 2, -1) if text[at] == " ")
        cut = next((at for at in spaces if not text[at - 1].isspace()), end)
        yield text[begin:cut]
        begin = cut
    yield text[begin:]


def _plain_behind(before: str, text: str, tokenizer: Any) -> list[int]:
    return _behind(before, text, lambda whole: tokens_of(tokenizer, whole, split_special_tokens=True))


def _behind(before: str, text: str, tokenize: Callable[[str], list[int]]) -> list[int]:
    """Ids of text behind some other text, if that has the same ids there as alone."""
    ids, first = tokenize(before + text), tokenize(before) if before else []
    return ids[len(first) :] if ids[: len(first)] == first else tokenize(text)


def _is_safe(texts: Iterable[str], marks: dict[str, int], ids: list[int], blank_ids: list[int]) -> bool:
    """Whether tokenising everything at once turned no text into a mark."""
    if any(mark in text for text in texts for mark in marks):
        return False
    numbers = set(marks.values())
    return [i for i in ids if i in numbers] == [i for i in blank_ids if i in numbers]


def _agree(ids: list[int], other: list[int]) -> int:
    """Length of the beginning that both share."""
    pairs = zip(ids, other, strict=False)
    return next((n for n, (one, two) in enumerate(pairs) if one != two), min(len(ids), len(other)))


def _split(text: str, at: Iterable[str]) -> list[str]:
    """The text cut at each of some strings, which are kept; the longest wins."""
    longest = sorted(at, key=len, reverse=True)
    return [part for part in re.split(f"({'|'.join(map(re.escape, longest))})", text) if part]


def _word_not_in(texts: Iterable[str], role: str) -> str:
    """A placeholder for a message: a word that nobody has said."""
    word = f"The{role}word"
    said = "\0".join(texts)
    # A counter would be a loop that whoever writes the text has in hand.
    return word + sha256(said.encode("utf-8", "surrogatepass")).hexdigest() if word in said else word
