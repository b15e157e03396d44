"""`h2o-chat lab eval stuck`: whether a conversation still answers, or says one sentence to whatever is said.

A conversation gets every message of a script, as in `run`, then twenty questions about the world. Two figures
tell whether it lives: the share of answers that repeat an earlier answer to another message, and how many
questions about the world are answered here of those that are answered in a new conversation each. Answers
that differ prove nothing: babble differs too.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.loops import Grams, alike, grams
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Note, Turn
from h2o_chat.lab.eval.synthetic_talk import holds
from h2o_chat.lab.shared.policy_variant import Run
from h2o_chat.lab.shared.report_output import print_table, slots
from h2o_chat.models.load import Loaded

WORLD = (
    ("What is the capital of France?", ("Paris",)),
    ("How many days are in a week?", ("7", "seven")),
    ("What do bees make?", ("honey",)),
    ("Who wrote Hamlet?", ("Shakespeare",)),
    ("What colour is the sky on a clear day?", ("blue",)),
    ("What is the largest planet in our solar system?", ("Jupiter",)),
    ("What is the capital of Italy?", ("Rome",)),
    ("What is two plus two?", ("4", "four")),
    ("In which country are the pyramids of Giza?", ("Egypt",)),
    ("Who painted the Mona Lisa?", ("Leonardo", "Vinci")),
    ("What is frozen water called?", ("ice",)),
    ("How many legs does a spider have?", ("8", "eight")),
    ("Which planet do we live on?", ("Earth",)),
    ("What is the capital of Japan?", ("Tokyo",)),
    ("How many minutes are in an hour?", ("60", "sixty")),
    ("Which animal barks?", ("dog", "dogs")),
    ("What is the opposite of hot?", ("cold",)),
    ("Who was the first person to walk on the moon?", ("Armstrong",)),
    ("What gas do humans need to breathe?", ("oxygen",)),
    ("What is the capital of Spain?", ("Madrid",)),
)
"""Questions about the world, and words of which one stands in a right answer."""


@dataclass(frozen=True)
class Stuck:
    policy: str
    budget: int | None
    """None: the full cache."""
    seed: int
    answers: list[str]
    """Answers to the messages of the script, then to the questions about the world."""
    repeated: list[bool]
    """For each answer: it repeats an earlier answer to another message."""
    notes: list[str]
    """Codes of the notes that a person saw."""
    right: list[bool]
    """For each question about the world, asked at the end."""
    known: list[bool]
    """For each question about the world, asked in a new conversation."""
    seen_tokens: int
    seconds: float
    """Seconds of the conversation."""
    early_ms: float
    """Milliseconds a token of its first quarter."""
    late_ms: float
    """Milliseconds a token of its last quarter."""

    @property
    def repeats(self) -> float:
        """Share of the answers that repeat an earlier one."""
        return sum(self.repeated) / len(self.repeated)

    @property
    def still_known(self) -> int:
        """Questions about the world that are answered in both."""
        return sum(here and alone for here, alone in zip(self.right, self.known, strict=True))


@dataclass(frozen=True)
class StuckReport:
    model: str
    messages: int
    temperature: float
    conversations: list[Stuck]


def repeated(messages: Sequence[str], answers: Sequence[str]) -> list[bool]:
    """Returns for each answer whether it says what an earlier answer to another message said."""
    found, before = [], list[tuple[str, Grams]]()
    for message, answer in zip(messages, answers, strict=True):
        said, asked = grams(answer), " ".join(message.casefold().split())
        found.append(any(asked != other and alike(said, earlier) for other, earlier in before))
        before.append((asked, said))
    return found


def measure(
    loaded: Loaded,
    messages: Sequence[str],
    runs: Sequence[Run],
    sampling: Sampling,
    seeds: Sequence[int],
    cured: bool = True,
    tick: Tick = unheard,
) -> StuckReport:
    """Every variant with every seed.

    Args:
        cured: whether what is done against loops is done.
    """
    found = list[Stuck]()
    for run in runs:
        for seed in seeds:
            told = part(tick, len(found), len(runs) * len(seeds))
            settings = replace(run.settings(), seed=seed)
            found.append(_held(loaded, messages, run, settings, sampling, cured, told))
    return StuckReport(loaded.name, len(messages), sampling.temperature, found)


def _held(
    loaded: Loaded,
    messages: Sequence[str],
    run: Run,
    settings: Settings,
    sampling: Sampling,
    cured: bool,
    tick: Tick,
) -> Stuck:
    """One conversation, then each question about the world alone."""
    engine = Engine(loaded, settings)
    chat = Chat(engine, settings)
    chat.breaks_loops = cured
    said = [*messages, *(question for question, _ in WORLD)]
    answers, notes, began, pace = list[str](), list[str](), time.monotonic(), list[float]()
    for number, message in enumerate(said):
        for event in chat.send(message, sampling):
            if isinstance(event, Note):
                notes.append(event.code)
            elif isinstance(event, Turn):
                answers.append(event.text)
                pace += [1000 / event.tok_s] * (event.new_tokens - 1) if event.tok_s else []
        tick(number / (len(said) + len(WORLD)))
    seconds, seen, quarter = time.monotonic() - began, engine.seen, max(1, len(pace) // 4)
    alone = []
    for number, (question, _) in enumerate(WORLD, len(said)):
        chat.clear()
        engine.reseed(settings.seed or 0)
        alone += [event.text for event in chat.send(question, sampling) if isinstance(event, Turn)]
        tick(number / (len(said) + len(WORLD)))
    chat.close()
    return Stuck(
        run.name,
        run.budget,
        settings.seed or 0,
        answers,
        repeated(said, answers),
        notes,
        _right(answers[-len(WORLD) :]),
        _right(alone),
        seen,
        seconds,
        sum(pace[:quarter]) / quarter,
        sum(pace[-quarter:]) / quarter,
    )


def _right(answers: Sequence[str]) -> list[bool]:
    return [
        any(holds(answer, word) for word in words) for answer, (_, words) in zip(answers, WORLD, strict=True)
    ]


def show_table(report: StuckReport) -> None:
    columns = (
        *("policy", "slots", "seed", "repeated", "world"),
        *("tokens seen", "ms a token, first quarter", "last"),
    )
    rows = [
        (
            *(one.policy, slots(one.budget), str(one.seed), f"{one.repeats:.1%}"),
            *(f"{one.still_known} of {sum(one.known)}", f"{one.seen_tokens:,}"),
            *(f"{one.early_ms:.1f}", f"{one.late_ms:.1f}"),
        )
        for one in report.conversations
    ]
    print_table(
        columns,
        rows,
        f"{report.model}: {report.messages} messages, then {len(WORLD)} questions about the world,"
        f" temperature {report.temperature:g}",
        "Repeated: answers that say what an earlier answer to another message said. World: right here"
        " of those that are right in a new conversation.",
    )
