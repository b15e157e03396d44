"""Learns what each query head of a model counts when it is asked what an answer rests on.

    tools/train_source.py MODEL [OUT] [--conversations 16] [--seed 901] [--small-talk FILE]

The model answers questions about made-up conversations. Each answer's probability is computed once more with
each earlier message left out: that is the truth (`lab/left_out.py`). From the attention that each query head
gave to each message one weight a head is learned, so that messages without which the answer is much less
likely get more than 1 and all others less (logistic regression). SMALL-TALK: a JSON list of conversations; of
each other one the last answer is made anew, and learned from, too: else longer sentences than those made up
here are named for nothing. OUT: a file, h2o-source.json in the folder of MODEL if it is not named; there the
program reads it.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from h2o_chat.base.config import Settings  # noqa: E402
from h2o_chat.chat.templates import choose  # noqa: E402
from h2o_chat.engine.answering import AnswerAttention  # noqa: E402
from h2o_chat.engine.engine import Engine  # noqa: E402
from h2o_chat.engine.source import FILE, LEAST  # noqa: E402
from h2o_chat.lab.left_out import CLEARLY, RESTS, Answered, Drawn, drawn, lost_without, read, talked  # noqa: E402
from h2o_chat.lab.recall import ANSWER_TOKENS  # noqa: E402
from h2o_chat.models.resolve import find  # noqa: E402
from h2o_chat.native.loading import open_model  # noqa: E402

BUDGET = 1024
"""Nothing of a conversation has to go."""
PENALTY = 1e-4
"""On the square of each weight, so that few answers do not decide."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--seed", type=int, default=901)
    parser.add_argument("--small-talk", type=Path)
    parser.add_argument("--of", type=int, default=60, help="conversations of SMALL-TALK, at most")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(model=asked.model, budget=BUDGET, seed=0, events_every=0, threads=1)
    out = asked.out or find(settings.model).folder / FILE
    loaded = open_model(settings, lambda *_: None)
    engine, full = Engine(loaded, settings), Engine(loaded, Settings(model=asked.model, policy="full"))
    heads = (loaded.sizes.layers, loaded.sizes.heads)
    template = choose(loaded.tokenizer, "auto")
    ones = [drawn(loaded.tokenizer, template, f"{asked.seed} {n}") for n in range(asked.conversations)]
    if asked.small_talk:
        ones += talked(loaded.tokenizer, template, asked.small_talk, 0)[: asked.of]
    given, lost = [], []
    for number, one in enumerate(ones, 1):
        answers, attention = answered(engine, one, heads)
        given.append(attention)
        lost.append(lost_without(full, one, answers))
        print(f"{number} of {len(ones)}", file=sys.stderr)
    weights = learned(
        torch.cat([each.flatten(0, 1) for each in given]), torch.cat([x.flatten() for x in lost])
    )
    scores = [attention @ weights for attention in given]
    least = border(scores, lost)
    weights = (weights * LEAST / least).view(heads)
    rows = [[round(float(x), 4) for x in layer] for layer in weights]
    made = f"tools/train_source.py --conversations {asked.conversations} --seed {asked.seed}"
    made += f" --small-talk {asked.small_talk.name} --of {asked.of}" if asked.small_talk else ""
    out.write_text(json.dumps({"made": made, "heads": rows}) + "\n")
    print(f"{out} is written")


def answered(engine: Engine, one: Drawn, heads: tuple[int, int]) -> tuple[list[Answered], Tensor]:
    """Greedy answers to all questions, and what each query head gave to each message. [Q, M, L * heads]"""
    template = choose(engine.tokenizer, "auto")
    each = torch.eye(heads[0] * heads[1]).view(-1, *heads)
    read(engine, one)
    state = engine.snapshot()
    answers, attention = [], []
    for question in one.questions:
        engine.restore(state)
        looking = AnswerAttention(engine.cache)
        asked = template.later(question.messages[0]["content"]).ids
        logits = engine.feed(asked)
        looking.begin()
        answer: list[int] = []
        while logits is not None and len(answer) < ANSWER_TOKENS:
            answer.append(int(logits.argmax()))
            if answer[-1] in engine.eos:
                break
            logits = engine.forward(answer[-1:])
            looking.fed()
        at, got = looking.found(each)
        spans = [(at >= max(1, message.first)) & (at <= message.last) for message in one.messages]
        attention.append(torch.stack([got[span].sum(0) for span in spans]))
        answers.append(Answered(asked, answer))
    return answers, torch.stack(attention)


def learned(given: Tensor, lost: Tensor) -> Tensor:
    """A weight for each query head [K], from what each gave [N, K] and the nats lost without it [N]."""
    sure = (lost < RESTS) | (lost > CLEARLY)
    given, rests = given[sure], (lost[sure] > CLEARLY).double()
    weights = torch.zeros(
        given.shape[1] + 1, dtype=torch.float64, requires_grad=True
    )  # the last: a threshold
    rare = ((1 - rests).sum() / rests.sum()).sqrt()
    solver = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        logits = given @ weights[:-1] + weights[-1]
        wrong = torch.nn.functional.binary_cross_entropy_with_logits(logits, rests, pos_weight=rare)
        total = wrong + PENALTY * weights[:-1].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    solver.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()[:-1]


def border(scores: list[Tensor], lost: list[Tensor]) -> float:
    """Between what the first message has in answers that rest on nothing, and on one: 1% and 5% are beyond.

    Args:
        scores: [Q, M] of each conversation's messages; `lost` as `lost_without` has it.
    """
    first = torch.cat([each.max(1).values for each in scores])
    most = torch.cat([each.max(1).values for each in lost])
    return float(first[most < RESTS].quantile(0.99) + first[most > CLEARLY].quantile(0.05)) / 2


if __name__ == "__main__":
    main()
