"""`h2o-chat run`: what stands on stdout, what on stderr, and in which order."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from here import h2o_here
from program import Ended, Streamed, h2o, started
from sweep import sweep

from h2o_chat.base.errors import ExitCode, OutOfMemoryError
from h2o_chat.cli.run import ending
from h2o_chat.events.events import CacheState, End, Note, Prompt, Said, Session, Token, Turn, from_json

ENDLESS = ("--ignore-eos", "--max-tokens", 100_000)


@pytest.fixture(scope="module")
def story(small: Path) -> Ended:
    """A prompt and piped text, as events."""
    greedy = ("-m", small, "--max-tokens", 40, "--json", "-b", 32, "--temperature", 0)
    return h2o("run", "Once upon", *greedy, piped="a time\n")


@pytest.fixture(scope="module")
def script(chatty: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Two turns with a system prompt."""
    turns = tmp_path_factory.mktemp("script") / "turns.txt"
    turns.write_text("Hello, my name is Ada.\n---\nWhat is my name?\n")
    greedy = ("-m", chatty, "--temperature", 0)
    return h2o_here("run", "--script", turns, *greedy, "--json", "--system", "You are kind.", "--events", 4)


def test_events_stand_alone_on_stdout(story: Ended) -> None:
    events = story.events
    assert isinstance(events[0], Session)
    assert events[1] == Said(0, "user", "Once upon\n\na time")
    assert isinstance(events[2], Prompt)
    assert isinstance(events[-2], Turn)
    assert isinstance(events[-1], End)
    assert story.err == "", "nothing to say, and no terminal for a progress bar"


def test_one_event_per_generated_token(story: Ended) -> None:
    tokens, (turn,), (end,) = story.of(Token), story.of(Turn), story.of(End)
    assert len(tokens) == turn.new_tokens == end.tokens == 40
    assert "".join(token.text for token in tokens) == turn.text
    assert turn.finish == "length"
    positions = [token.position for token in tokens]
    assert positions == list(range(positions[0], positions[0] + 40))


def test_cache_events_come_by_the_count(story: Ended) -> None:
    states = story.of(CacheState)
    assert len(states) >= 3
    assert all(state.kept <= 32 for state in states)
    assert states[-1].seen > 32 == states[-1].kept


def test_session_says_what_ran(story: Ended) -> None:
    (session,) = story.of(Session)
    assert (session.model, session.template, session.budget) == ("stories260k", "plain", 32)
    assert session.seed >= 0
    assert {"torch", "transformers", "h2o-chat"} <= session.versions.keys()


def test_plain_text_is_the_answer_alone(small: Path, story: Ended) -> None:
    """The words equal those of the events: greedy, so the seed does not matter."""
    done = h2o_here(
        "run", "Once upon\n\na time", "-m", small, "--max-tokens", 40, "--budget", 32, "--temperature", 0
    )
    (turn,) = story.of(Turn)
    assert done.out == turn.text + "\n"
    assert "stories260k" in done.err
    assert "seed " in done.err


def test_script_is_one_conversation(script: Ended) -> None:
    (session,), turns, (end,) = script.of(Session), script.of(Turn), script.of(End)
    assert session.template == "model"
    assert len(turns) == 2
    assert "Ada" in turns[1].text
    assert [index for index, _ in turns[1].hold] == [0, 1, 2, 3, 4], "system, two questions, two answers"
    assert turns[1].seen > turns[0].seen
    assert end.turns == 2


def test_a_pipe_that_closes_early_ends_quietly(small: Path) -> None:
    """Its reader leaves after a line, like `head -1`."""
    with Streamed("Once", "-m", small, *ENDLESS) as run:
        run.until(Session)
        run.process.stdout.close()
        assert run.process.stderr.read() == ""
        assert run.process.wait(60) == ExitCode.OK


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, ExitCode.TERMINATED),
        # test_run_reading.py has one that is interrupted, test_leaving.py one that is hung up
        *sweep((signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGHUP, ExitCode.HUNG_UP)),
    ],
)
def test_what_was_said_is_kept(small: Path, number: int, code: ExitCode) -> None:
    with Streamed("Once", "-m", small, *ENDLESS) as run:
        run.until(Token)
        run.process.send_signal(number)
        assert run.ended() == (code, "")
    turn, end = run.events[-2:]
    assert isinstance(turn, Turn)
    assert isinstance(end, End)
    assert turn.finish == "stopped"
    assert turn.text
    assert end.tokens == turn.new_tokens > 0


def test_a_pipe_that_says_nothing_is_told_of(small: Path) -> None:
    """It may be slow, or never written to at all: nobody can know."""
    flags = ("-m", small, "--max-tokens", 5, "--json")
    process = started("run", "Once", *flags, stdin=subprocess.PIPE)
    assert "waiting for the end of what is piped in" in process.stderr.readline()
    out, _ = process.communicate("upon a time", timeout=60)
    assert process.returncode == ExitCode.OK
    assert from_json(out.splitlines()[1]) == Said(0, "user", "Once\n\nupon a time")


def test_another_system_prompt_begins_another_conversation(small: Path, tmp_path: Path) -> None:
    flags = ("-m", small, "--data", tmp_path, "--max-tokens", 3, "--json")
    h2o_here("run", "Once", "--save", "--system", "Be kind.", *flags)
    for asked, notes in (("Be kind.", []), ("Be rude.", ["system"]), (None, [])):
        system = [] if asked is None else ["--system", asked]
        done = h2o_here("run", "and", "--resume", "last", *system, *flags)
        assert [note.code for note in done.of(Note)] == notes
        said = done.of(Said)[0]
        assert (said.role, said.text) == ("system", "Be kind.")
        assert ("goes on with the system prompt that it began with" in done.err) is bool(notes)


def test_whoever_runs_out_of_memory_is_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for hint, said in (("", "Try a smaller --budget"), ("Ask for less.", "Ask for less.")):

        def fails(hint: str = hint) -> ExitCode:
            raise OutOfMemoryError("cuda:0 ran out of memory", hint)

        assert ending(fails) == ExitCode.MEMORY
        assert said in capsys.readouterr().err


def test_answers_are_what_a_schema_wants(chatty: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    red = {"properties": {"red": {"type": "boolean"}}, "required": ["red"], "additionalProperties": False}
    schema.write_text(json.dumps({"type": "object", **red}))
    done = h2o_here("run", "Is it red?", "-m", chatty, "--schema", schema, "--temperature", 1.5)
    assert type(json.loads(done.out)["red"]) is bool
    schema.write_text("[")
    h2o_here("run", "Is it red?", "-m", chatty, "--schema", schema, ends=ExitCode.USAGE)
