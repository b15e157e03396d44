"""Whether a conversation lives: what counts as repeated, as right, and what the commands print."""

import json
from pathlib import Path

from typer.testing import CliRunner

from h2o_chat.base.config import Sampling
from h2o_chat.cli.cli import app
from h2o_chat.lab.eval import qa, stuck_eval
from h2o_chat.lab.shared.policy_variant import Run, runs_of
from h2o_chat.models.load import Loaded
from h2o_chat.models.tokenizer_calls import tokens_of

SAID = ["Hello.", "I like tea.", "Where is Rome?"]
SHORT = Sampling(max_tokens=8)


def test_an_answer_repeats_an_earlier_one_to_another_message() -> None:
    told = "I am doing great, and thank you for asking."
    answers = [told, told, told.upper(), "I am doing great, and thanks.", told[:-7], "Yes.", "No.", "yes"]
    messages = ["hi", " HI", "ho", "hum", "hey", "a?", "b?", "c?"]
    assert stuck_eval.repeated(messages, answers) == [False, False, True, False, True, False, False, True]


def test_questions_about_the_world_end_every_conversation(pocket: Loaded) -> None:
    runs = [Run(), runs_of(["h2o"], [64])[1]]
    report = stuck_eval.measure(pocket, SAID, runs, SHORT, [0, 1])
    assert [(one.policy, one.seed) for one in report.conversations] == [
        *(("full", 0), ("full", 1), ("h2o", 0), ("h2o", 1))
    ]
    for one in report.conversations:
        assert len(one.answers) == len(one.repeated) == len(SAID) + len(stuck_eval.WORLD)
        assert len(one.right) == len(one.known) == len(stuck_eval.WORLD)
        assert one.still_known <= sum(one.known)
    first, second = report.conversations[2:]
    assert first.answers == second.answers, "greedy: no seed changes it"
    once = stuck_eval.measure(pocket, SAID, runs[1:], SHORT, [0], cured=False)
    assert once.conversations[0].answers[: len(SAID)] == first.answers[: len(SAID)], "nothing repeats yet"


def test_the_beginning_of_a_long_passage_is_cut_off(pocket: Loaded) -> None:
    item = qa.Item("first " * 300 + "last.", "Which word is the last?", "last")
    text = qa.message(pocket.tokenizer, item, 60)
    assert len(tokens_of(pocket.tokenizer, text)) <= 62  # a word cut in two may have other tokens
    assert text.endswith("last.\n\nQuestion: Which word is the last?")
    assert qa.message(pocket.tokenizer, item, 5000).startswith("Passage: first")


def test_the_commands(bundled: Path, tmp_path: Path) -> None:
    turns, items = tmp_path / "turns.txt", tmp_path / "items.jsonl"
    turns.write_text("\n---\n".join(SAID))
    items.write_text(
        json.dumps({"context": "My dog is called Rexo.", "question": "Whose name?", "answer": "Rexo"})
    )
    runner, model = CliRunner(), ["-m", str(bundled), "-b", "64"]
    done = runner.invoke(
        app, ["eval", "stuck", "--turns", str(turns), *model, "--tokens", "4", "--as-before"]
    )
    assert done.exit_code == 0, done.output
    assert "3 messages, then 20 questions" in done.stdout
    greedy = ["--temperature", "0", "--top-p", "0", "--tokens", "4"]  # which top-p is meant does not matter
    assert runner.invoke(app, ["eval", "stuck", "--turns", str(turns), *model, *greedy]).exit_code == 0
    ask = ["eval", "qa", "--items", str(items), *model, "--tokens", "6", "--json"]
    done = runner.invoke(app, ask)
    assert done.exit_code == 0, done.output
    scores = json.loads(done.stdout)["scores"]
    assert [(one["policy"], one["recall"]) for one in scores] == [
        *(("full", False), ("h2o", False), ("h2o", True))
    ]
    assert runner.invoke(app, ["eval", "qa", "--items", str(turns), *model]).exit_code == 2
