"""Made-up conversations: what is told in them, and that pins and branches are read as the engine does it."""

from pathlib import Path

import opened_models
import pytest
from typer.testing import CliRunner

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.templates.chat_template import PlainTemplate, choose
from h2o_chat.cli.cli import app
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.lab.eval import answered_recall, scripted_answers
from h2o_chat.lab.eval.answered_recall import Answered
from h2o_chat.lab.eval.long_recall import BARE, measure_long
from h2o_chat.lab.eval.recall_questions import holds
from h2o_chat.lab.eval.scripted_conversation import Script
from h2o_chat.lab.eval.synthetic_conversations import KINDS, draw, write
from h2o_chat.lab.shared.policy_runs import Run
from h2o_chat.lab.shared.policy_variant import PolicyVariant, crossed
from h2o_chat.models.fits import equal_slots
from h2o_chat.models.load import Loaded, load
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

POCKET = Path(__file__).parents[2] / "assets" / "pocket"


@pytest.fixture(scope="module")
def pocket() -> Loaded:
    return load(Settings(model=str(POCKET), dtype="float64", threads=1), lambda *_: None)


@pytest.fixture(scope="module")
def fast() -> Loaded:
    """The native step, a thirtieth of the time: for tests that compare nothing with another step."""
    loaded: Loaded = opened_models.loaded(Settings(model=str(POCKET), threads=1))
    return loaded


def words(loaded: Loaded, script: Script) -> str:
    return str(loaded.tokenizer.decode([i for feed in script.feeds if not feed.asks for i in feed.ids]))


@pytest.mark.parametrize("text_alone", [False, True], ids=["chat", "text"])
def test_what_is_asked_for_was_told(pocket: Loaded, text_alone: bool) -> None:
    template = PlainTemplate(pocket.tokenizer) if text_alone else choose(pocket.tokenizer, "auto")
    script, questions = draw(pocket.tokenizer, template, 3000, "7")
    assert 3000 <= script.tokens < 3100
    assert [question.kind for question in questions] == list(KINDS.elements())
    text = words(pocket, script)
    for question in questions:
        told = [value for value in (question.stale, question.expected) if value is not None]
        assert all(holds(text, value) for value in told)
        assert len(told) == {"corrected": 2, "not told": 0}.get(question.kind, 1)
        if question.expected is None:
            continue
        after = text.rindex(question.expected)
        assert question.stale is None or text.index(question.stale) < after, "the correction comes last"
        about = len(pocket.tokenizer(text[after:])["input_ids"])
        assert question.distance == pytest.approx(about, abs=25)
    pinned = pocket.tokenizer.decode(
        [token for place, token in enumerate(fed(script)) if place in script.pins]
    )
    assert all(holds(pinned, q.expected or "") for q in questions if q.kind == "pinned")
    assert not any(holds(pinned, q.expected or "") for q in questions if q.kind == "plain")


def fed(script: Script) -> list[int]:
    return [token for feed in script.feeds if not feed.asks for token in feed.ids]


def test_the_same_facts_with_and_without_talk_in_between(pocket: Loaded) -> None:
    template = choose(pocket.tokenizer, "auto")
    short, long, again, other = (
        draw(pocket.tokenizer, template, tokens, seed)
        for tokens, seed in ((0, "1"), (900, "1"), (900, "1"), (900, "2"))
    )
    asked = [[(q.messages, q.expected, q.stale, q.kind) for q in questions] for _, questions in (short, long)]
    assert asked[0] == asked[1]
    assert max(question.distance for question in short[1]) < short[0].tokens < 400
    assert (fed(long[0]), long[1]) == (fed(again[0]), again[1])
    assert fed(long[0]) != fed(other[0])


def alone(loaded: Loaded, script: Script, budget: int, tokens: int) -> list[str]:
    """The slow twin: the program's own engine, one conversation and one question after another."""
    said = []
    engine = Engine(loaded, Settings(budget=budget, events_every=0, dtype="float64"))
    engine.protect(script.protected)
    engine.pin(sorted(script.pins))  # type: ignore[arg-type]
    for feed in script.feeds:
        if not feed.asks:
            engine.feed(feed.ids, prompt=feed.prompt)
            continue
        before = engine.snapshot()
        *_, turn = (e for e in engine.generate(feed.ids, Sampling(max_tokens=tokens)) if isinstance(e, Turn))
        said.append(turn.text)
        engine.restore(before)
    return said


def test_pins_and_branches_are_read_as_the_engine_reads_them(pocket: Loaded) -> None:
    template, scripts = choose(pocket.tokenizer, "auto"), []
    for system, pin in (("End every answer with the word lemon.", True), (None, False)):
        script = Script(pocket.tokenizer, template)
        if system:
            script.say("system", system)
        script.ask("Hello!")  # before anything was said
        where = script.say("user", "My door code is 4K7PM.")
        if pin:
            script.pin(where)
        script.say("assistant", "Noted.")
        for number in range(4):
            script.ask("What is my door code?")
            script.say("user", f"I want to book a table for {number + 2} at Mirado on Friday.")
            script.say("assistant", "Sure. What time would you like the table?")
        script.ask("What is my door code?")
        scripts.append(script)
    cache = H2OCache(128, positions=probe(pocket.model))
    together = scripted_answers.answers(pocket, scripts, cache, 10)
    assert together == [alone(pocket, script, 128, 10) for script in scripts]


class Nothing:
    """Holds nothing of what was said."""

    def held(self, positions: range) -> float:
        return 0.0


def test_questions_have_recalled_what_is_gone(pocket: Loaded) -> None:
    template = choose(pocket.tokenizer, "auto")
    script, questions = draw(pocket.tokenizer, template, 1500, "7", recall=True)
    for number, question in enumerate(questions):
        asked = pocket.tokenizer.decode(script.asked_again(number, Nothing(), 128))
        assert question.expected is None or question.expected in asked


def test_what_was_dropped_counts_as_forgotten(fast: Loaded) -> None:
    report = measure_long(fast, 500, 1, 3, [PolicyVariant("window"), PolicyVariant("h2o")], [96])
    share = {(s.policy, s.group): s for s in report.shares}
    assert report.full_fits
    assert share["full, nothing between", "plain"].right > 0
    assert share["window", "plain, far half"].right == 0
    assert ("window", "pinned") not in share, "it cannot pin"
    assert share["full", "plain"].of == KINDS["plain"]
    past = measure_long(fast, 2100, 1, 3, [], [])
    assert not past.full_fits
    assert {s.policy for s in past.shares} == {"full, nothing between"}


def test_smaller_numbers_get_more_slots_in_equal_bytes(fast: Loaded) -> None:
    variants = crossed(["window"], ["auto", "int8"])
    report = measure_long(fast, 200, 1, 3, variants, [48], equal_bytes=True)
    slots = {share.policy: share.slots for share in report.shares if share.budget == 48}
    assert slots["window"] == 48
    assert slots["window:kv=int8"] == equal_slots(fast.sizes, fast.precision.itemsize, "int8", 48) > 48


def test_the_model_answers_itself(fast: Loaded) -> None:
    """Every question is asked twice, once with recall, and the conversation knows of none."""
    runs = [Run(PolicyVariant("h2o"), 64)]
    report = answered_recall.measure(fast, 300, 1, 3, runs, recall=True)
    names = [BARE, "h2o", "h2o, recall"]
    assert list(dict.fromkeys(share.policy for share in report.shares)) == names
    assert {share.of for share in report.shares if share.group == "plain"} == {KINDS["plain"]}
    right = [sum(one.right for one in report.shares if one.policy == name) for name in names]
    assert right[1] <= right[2], "what is told again is known at least as well"
    settings = Settings(budget=64, recall="off", events_every=0)
    chat = Chat(Engine(fast, settings), settings)
    script, questions = write(Answered(chat), 300, "3 0")
    assert len(script.answers) == len(questions) == KINDS.total()
    assert not {question.messages[0]["content"] for question in questions} & {m.text for m in chat.messages}
    assert chat.engine.seen >= 300


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["--questions", "x", "--generate", "100"], ["--questions", "x", "--scripted"]),
        ["--generate", "100", "--equal-bytes"],
    ],
)
def test_one_source_of_questions(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["eval", "recall", "-m", str(POCKET), *arguments]).exit_code == 2
