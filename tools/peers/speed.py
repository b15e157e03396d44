"""This program beside others on this machine: a token of each in turns, or all that fit into equal K/V
memory.

    python tools/peers/speed.py -m MODEL --peers llama.cpp,openvino --folder DIR
    python tools/peers/speed.py --shape smollm2-135m --peers all --folder DIR
    python tools/peers/speed.py --shape smollm2-135m --kv-gib 2 --folder DIR

DIR holds the other programs' environments: `python tools/peers/make_environments.py DIR` makes them. One that
does not run is named, and the others go on. With --kv-gib many conversations are held at once
(`equal_memory.py`). Nothing else may run on the machine.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import programs
from equal_memory import Memory, run_equal_memory, show_equal_memory

from h2o_chat.base.errors import ExitCode, H2OChatError
from h2o_chat.base.progress import Progress
from h2o_chat.cli.lab_commands import measured
from h2o_chat.cli.run import ending
from h2o_chat.lab.bench.speed import OTHER, Absent, Peer, Wanted, one_line, run_speed
from h2o_chat.lab.bench.speed_table import show_speed
from h2o_chat.lab.bench.timed_programs import Sample
from h2o_chat.lab.shared.report_output import tell
from h2o_chat.models.load import check_family
from h2o_chat.models.resolve import find
from h2o_chat.native.threads import let_torch_sleep


def other_programs(
    wanted: Wanted, names: Sequence[str], folder: Path | None, stack: ExitStack, progress: Progress
) -> tuple[list[Peer], list[Absent]]:
    """Starts the programs: a peer for each number of tokens seen, and those that do not start."""
    model = find(wanted.settings.model).folder
    window = check_family(model).max_position_embeddings
    seen = [tokens for tokens in wanted.seen if tokens <= window]
    contexts = list(dict.fromkeys([*seen, wanted.prompt]))
    found, absent = list[Peer](), list[Absent]()
    for number, name in enumerate(names):
        how = programs.Conditions(folder, model, contexts, wanted.threads)
        try:
            runs, about = programs.start(name, how)
        except H2OChatError as error:
            absent.append(Absent(name, one_line(error)))
            continue
        finally:
            progress("other programs", (number + 1) / len(names))
        stack.callback(runs.close)
        form = str(about["form"])
        program = name if name.endswith(form) else f"{name} {form}"
        given, dtype = str(about["given"]), str(about.get("dtype", "float32"))
        for tokens in seen:
            peer = Peer(
                *(f"{program}, {tokens:,} seen", program, OTHER, given, Conversation(runs, tokens)),
                *(tokens, wanted.threads, form, dtype, int(about["token_bytes"])),
                timed_prompt=tokens == seen[0],
            )
            found.append(peer)
    return found, absent


class Conversation:
    """One of several conversations that a started program holds, by the tokens that it has seen."""

    def __init__(self, runs: programs.Driven, seen: int) -> None:
        self.runs, self.seen = runs, seen

    def read(self, ids: Sequence[int]) -> Sample:
        return self.runs.read(len(ids))

    def decode(self, tokens: int) -> Sample:
        return self.runs.decode(self.seen, tokens)

    def close(self) -> None:
        """The program is closed once, for all of its conversations."""


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what is asked for; the exit codes are those of `h2o-chat`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    model = parser.add_mutually_exclusive_group()
    model.add_argument("-m", "--model", help="folder, GGUF file or name; without it pocket")
    model.add_argument("--shape", help="random weights of this shape, made for the run")
    parser.add_argument("--peers", default="llama.cpp", help="programs, with commas between them; or all")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="of the other programs' environments")
    parser.add_argument("-b", "--budget", type=numbers, default="512", help="slots a KV head; with commas")
    parser.add_argument("--quantize", default="auto", help="ours: none, int8, int4, nf4 or auto; with commas")
    parser.add_argument("--seen", type=numbers, default="512,2048,8192", help="tokens seen; with commas")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt", type=int, default=640, help="tokens of the prompt that is timed")
    parser.add_argument("--turns", type=int, default=12, help="of 32 tokens, by each in turn")
    parser.add_argument("--kv-gib", type=float, help="many conversations in so much K/V memory, in GiB")
    parser.add_argument("--tokens-in", type=int, default=2048, help="with --kv-gib: of each prompt")
    parser.add_argument("--tokens-out", type=int, default=2048, help="with --kv-gib: of each answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    names = list(programs.PROGRAMS) if asked.peers == "all" else asked.peers.split(",")
    for name in names:
        if name not in programs.PROGRAMS:
            parser.error(f"--peers {name!r} is not known. One of: all, {', '.join(programs.PROGRAMS)}.")
    quantize = asked.quantize.split(",")

    def work() -> ExitCode:
        given = {"budget": asked.budget[0], "threads": asked.threads, "quantize": quantize[0]}
        with measured(asked.shape, asked.model, asked.seed, **given) as settings:
            let_torch_sleep(settings)
            if asked.kv_gib is not None:
                memory = Memory(int(asked.kv_gib * (1 << 30)), asked.tokens_in, asked.tokens_out)
                report = run_equal_memory(settings, memory, asked.folder)
                return tell(report, asked.json, show_equal_memory)
            more = asked.prompt, asked.turns, asked.seed
            wanted = Wanted(settings, quantize, asked.seen, *more, budgets=asked.budget)
            speeds = run_speed(wanted, partial(other_programs, wanted, names, asked.folder))
            return tell(speeds, asked.json, show_speed)

    return ending(work)


if __name__ == "__main__":
    sys.exit(main())
