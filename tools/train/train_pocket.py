"""Trains, evaluates and exports `pocket`, the bundled model, from raw text.

    tools/train/train_pocket.py train --data DIR --until 00:50
    tools/train/train_pocket.py train --data DIR --size large --tokens 300000000
    tools/train/train_pocket.py finish --data DIR --minutes 15
    tools/train/train_pocket.py evaluate --data DIR
    tools/train/train_pocket.py export --data DIR     (to assets/pocket, with the model card)

`train` resumes from runs/pocket/checkpoint.pt; SIGTERM makes it leave a checkpoint and end.
"""

import argparse
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from pocket.card import write_card
from pocket.data import Corpus, read_corpus
from pocket.evaluate import evaluate, write_report
from pocket.tokenizer import train_tokenizer
from pocket.train import Plan, Trainer
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets" / "pocket"


def moment(clock: str) -> float:
    """The next time that the UTC clock shows HH:MM, in seconds since the epoch."""
    hour, minute = map(int, clock.split(":"))
    now = datetime.now(UTC)
    then = now.replace(hour=hour, minute=minute, second=0)
    return (then if then > now else then + timedelta(days=1)).timestamp()


def load_tokenizer(corpus: Corpus, run: Path) -> Tokenizer:
    """The run's tokenizer, trained on first use."""
    path = run / "tokenizer.json"
    if path.exists():
        return Tokenizer.from_file(str(path))
    run.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(corpus.texts())
    tokenizer.save(str(path))
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["train", "finish", "evaluate", "export"])
    parser.add_argument("--data", type=Path, required=True, help="folder of the training text")
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "pocket")
    parser.add_argument("--size", choices=["small", "large"], default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="processes on a CPU")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--tokens", type=int, help="train on this many tokens (reproducible)")
    length.add_argument("--until", type=moment, help="train until HH:MM (UTC)")
    length.add_argument("--minutes", type=float, help="train for this long")
    arguments = parser.parse_args()
    if arguments.action == "export":
        shutil.copytree(arguments.run / "export", ASSETS, copy_function=shutil.copyfile, dirs_exist_ok=True)
        write_card(ASSETS, arguments.run)
    elif arguments.action == "evaluate":
        corpus = read_corpus(arguments.data)
        write_report(evaluate(arguments.run / "export", corpus), arguments.run)
        print((arguments.run / "evaluation.md").read_text("utf-8"))
    else:
        if arguments.minutes:
            arguments.until = time.time() + 60 * arguments.minutes
        if arguments.until is None and arguments.tokens is None:
            parser.error("say how long: --tokens, --until or --minutes")
        load_tokenizer(read_corpus(arguments.data), arguments.run)
        train(arguments)


def train(arguments: argparse.Namespace) -> None:
    """Starts the workers and waits for them."""
    workers = 1 if torch.cuda.is_available() else arguments.workers
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/store"
        processes = [
            context.Process(target=train_worker, args=(rank, workers, meeting, arguments))
            for rank in range(workers)
        ]
        for process in processes:
            process.start()

        def leave(*_: object) -> None:
            for process in processes:
                process.terminate()

        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        sys.exit("a worker failed; the last checkpoint stands")


def train_worker(rank: int, workers: int, meeting: str, arguments: argparse.Namespace) -> None:
    """One process of a run: on a CPU one thread, on a GPU all of it."""
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    if workers > 1:  # where there is no network it takes minutes, and one worker has nobody to meet
        dist.init_process_group("gloo", meeting, rank=rank, world_size=workers)
    corpus = read_corpus(arguments.data)
    tokenizer = load_tokenizer(corpus, arguments.run)
    trainer = Trainer(corpus, tokenizer, arguments.run, arguments.size, arguments.seed)
    trainer.run(Plan(arguments.tokens, arguments.until, finishing=arguments.action == "finish"))
    if workers > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
