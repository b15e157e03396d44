"""Watches a book being read with a small budget: how often the numbers move, where they end, what esc keeps.

    python tools/read_book.py FILE [--size 120x36] [--budget 128]

The bundled model reads the file, which must take it some seconds: in the chat screen in tmux, there once more
until esc at a third, and in `run` with a terminal for its stderr. Prints the figures of each and what stands
on the screen. Exits with 1 where the numbers move less than four times a second or do not end at 100%, where
panel and strip stand still, and where esc does not leave conversation, memory and prompt as they were.
"""

import argparse
import os
import pty
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from in_tmux import MOST_S, Screen, chat_screen

from h2o_chat.store import Store

QUESTION = "What is it about?"
HELLO = "Hello, my name is Priya."
AFTERWARDS = "What is my name?"
LEAST_A_SECOND = 4.0
LOOK_EVERY_S = 0.04
ESC_AT = 0.33
BACK_S = 15.0
"""After esc, until all is as it was."""
REMARK = re.compile(r"reading ([\d,]+) of ([\d,]+) · (\d+)%[^│\r\n─]*")


@dataclass(frozen=True)
class Told:
    """How far the reading was, as somebody could see it."""

    at_s: float
    tokens: int
    of: int
    remark: str


def told(text: str) -> Told | None:
    """What is said of the reading now; None if nothing is."""
    if (found := REMARK.search(text)) is None:
        return None
    tokens, of = (int(found[number].replace(",", "")) for number in (1, 2))
    return Told(time.monotonic(), tokens, of, found[0].strip())


def moved(before: list[Told], now: Told) -> bool:
    return not before or (before[-1].tokens, before[-1].of) != (now.tokens, now.of)


def judged(where: str, seen: list[Told], began_s: float) -> list[str]:
    """Prints the figures; returns what does not hold.

    Args:
        began_s: when enter was pressed or the program started.
    """
    if len(seen) < 2 or (took_s := seen[-1].at_s - seen[0].at_s) < 2:
        return [f"{where}: {len(seen)} different remarks in less than two seconds: too few to be judged."]
    first, last = seen[0], seen[-1]
    gaps_s = [two.at_s - one.at_s for one, two in pairwise(seen)]
    in_second = [0] * int(took_s)
    for one in seen[1:]:
        if (second := int(one.at_s - first.at_s)) < len(in_second):
            in_second[second] += 1
    a_second = len(gaps_s) / took_s
    print(f"first, after {first.at_s - began_s:.1f} s: {first.remark}")
    print(f"last, {took_s:.1f} s later: {last.remark}")
    print(
        f"{len(seen)} different remarks, {a_second:.1f} new ones a second; in a whole second: median"
        f" {statistics.median(in_second):g}, smallest {min(in_second)}; longest gap {max(gaps_s):.2f} s"
    )
    wrong = []
    if a_second < LEAST_A_SECOND:
        wrong.append(f"{where}: the numbers moved {a_second:.1f} times a second, not {LEAST_A_SECOND:.0f}.")
    if last.tokens != last.of:
        wrong.append(f"{where}: the last numbers were {last.tokens:,} of {last.of:,}, not 100%.")
    return wrong


def parts(shown: str) -> tuple[list[str], list[str], list[str]]:
    """Of the screen: the conversation, the prompt, and the memory as panel and strip draw it."""
    rows = shown.splitlines()
    prompt = max(number for number, row in enumerate(rows) if row.startswith("│ ❯ "))
    below = next(number for number, row in enumerate(rows) if row.startswith("╰─") and number > prompt)
    panel = rows[1].find("╭─ memory")  # -1: there is no panel under 100 columns
    left = [row[:panel] if panel > 0 else row for row in rows[:below]]
    right = [row[panel:] for row in rows[1:below]] if panel > 0 else []
    return left[1:prompt], left[prompt:below], right + rows[below + 1 : -1]


def stored(one: Screen) -> list[tuple[str, str]]:
    """Who said what, of all branches of all conversations; without an answer that is not finished."""
    store = Store(one.data)
    try:
        found = [message for each in store.list() for message in store.messages(each.id)]
        return [(message.role, message.text) for message in found if message.role == "user" or message.finish]
    finally:
        store.close()


def say(one: Screen, text: str) -> None:
    """Says it, and waits until it is answered and stored."""
    count = len(stored(one)) + 2
    one.write(text)
    one.press("Enter")
    one.until(lambda: len(stored(one)) == count, f"{text!r} is answered")

    def is_over() -> bool:
        shown = one.shown()
        return not is_busy(shown) and re.search(rf"#{count} .* kept", shown) is not None

    one.until(is_over, "the answer is whole, and how much is kept of it is told")


def is_busy(shown: str) -> bool:
    return "esc stop" in shown.splitlines()[-1]


def type_it(one: Screen, book: Path) -> str:
    """Types the name of the book and the question, as a person does; the space closes the menu of files.

    Returns:
        What was typed.
    """
    text = f'@"{book}" {QUESTION}' if " " in str(book) else f"@{book} {QUESTION}"
    one.write(text)
    typed = re.sub(r"\s", "", text)
    one.until(
        lambda: re.sub(r"[\s│❯]", "", "".join(parts(one.shown())[1])) == typed, f"{text!r} stands there"
    )
    return text


def greeted(one: Screen) -> None:
    one.until_shown("is ready.")
    say(one, HELLO)


def read_to_the_end(size: str, budget: int, book: Path) -> list[str]:
    with chat_screen(size, f"--model pocket --budget {budget}") as one:
        greeted(one)
        type_it(one, book)
        sent_s = time.monotonic()
        one.press("Enter")
        seen: list[Told] = []
        drawings: set[tuple[str, ...]] = set()
        halfway, shown = "", one.shown()
        while (not seen or is_busy(shown)) and time.monotonic() < sent_s + MOST_S:
            looked_s = time.monotonic()
            shown = one.shown()
            if now := told(shown):
                drawings.add(tuple(parts(shown)[2]))
                if moved(seen, now):
                    seen.append(now)
                if not halfway and now.tokens * 2 > now.of:
                    halfway = shown
            time.sleep(max(0.0, looked_s + LOOK_EVERY_S - time.monotonic()))
        print(f"{halfway}\n{shown}")
        wrong = judged("screen", seen, sent_s)
        print(f"{len(drawings)} different drawings of panel and strip during the reading")
        if len(drawings) < len(seen) / 2:
            wrong.append(f"screen: panel and strip were drawn {len(drawings)} times for {len(seen)} numbers.")
        return wrong


def read_a_third(size: str, budget: int, book: Path) -> list[str]:
    with chat_screen(size, f"--model pocket --budget {budget}") as one:
        greeted(one)
        said, (talk, _, memory) = stored(one), parts(one.shown())
        text = type_it(one, book)
        prompt = parts(one.shown())[1]
        one.press("Enter")

        def is_a_third() -> bool:
            now = told(one.shown())
            return now is not None and now.tokens > ESC_AT * now.of

        one.until(is_a_third, "a third is read")
        print(one.shown())
        one.press("Escape")
        give_up = time.monotonic() + BACK_S
        shown = one.shown()
        while (parts(shown)[1:] != (prompt, memory) or is_busy(shown)) and time.monotonic() < give_up:
            time.sleep(LOOK_EVERY_S)
            shown = one.shown()
        print(shown)
        now_talk, now_prompt, now_memory = parts(shown)
        wrong = []
        if heads(now_talk) != heads(talk) or stored(one) != said:
            was, is_now = (f"{heads(talk)}, {short(said)}", f"{heads(now_talk)}, {short(stored(one))}")
            wrong.append(f"esc: the conversation was {was}, and is {is_now}.")
        if now_prompt != prompt:
            wrong.append(f"esc: {text!r} was typed, and in the prompt stands {now_prompt}.")
        if now_memory != memory:
            wrong.append("esc: panel and strip are not drawn as they were before the reading.")
        one.press("C-c")  # a prompt that is not empty is cleared
        one.until_shown("❯ ask something")
        say(one, AFTERWARDS)
        print(one.shown())
        *rest, (role, answer) = stored(one)
        if rest != [*said, ("user", AFTERWARDS)] or role != "assistant" or not answer:
            wrong.append(f"esc: after the next message the conversation is {short(stored(one))}.")
        return wrong


def short(said: list[tuple[str, str]]) -> list[str]:
    return [f"{role}: {text[:60]}" for role, text in said]


def heads(talk: list[str]) -> list[str]:
    """The heads of the messages that are in sight, `#1 you`."""
    return re.findall(r"^│ (#\d+ \S+)", "\n".join(talk), re.MULTILINE)


def read_in_run(budget: int, book: Path) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "h2o_chat",
        "run",
        QUESTION,
        "--model",
        "pocket",
        "--budget",
        str(budget),
    ]
    ours, theirs = pty.openpty()
    with (
        tempfile.TemporaryDirectory() as folder,
        book.open("rb") as file,
        Path(folder, "answer").open("wb") as answer,
    ):
        sent_s = time.monotonic()
        data = ["--data", f"{folder}/data"]
        program = subprocess.Popen([*command, *data], stdin=file, stdout=answer, stderr=theirs)
        os.close(theirs)
        try:
            seen: list[Told] = []
            drawn = ""
            while time.monotonic() < sent_s + MOST_S and (more := some(ours)) is not None:
                *lines, drawn = (drawn + more).split("\r")
                for line in (*lines, drawn):
                    if (now := told(line)) and moved(seen, now):
                        seen.append(now)
            ended = program.wait(timeout=10)
        finally:
            program.kill()
            program.wait()
            os.close(ours)
        said = Path(folder, "answer").read_text().strip()
    wrong = judged("run", seen, sent_s)
    print(f"exit code {ended}; the answer: {said}")
    if ended or not said:
        wrong.append(f"run: exit code {ended}, {len(said)} characters of an answer, {drawn!r} on stderr.")
    return wrong


def some(terminal: int) -> str | None:
    """What was written to it meanwhile; None when nobody writes any more."""
    if not select.select([terminal], [], [], LOOK_EVERY_S)[0]:
        return ""
    try:
        return os.read(terminal, 65536).decode(errors="replace") or None
    except OSError:  # so Linux says that the other end is closed
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="a text of at most 256 KiB")
    parser.add_argument("--size", default="120x36", help="of the screen, columns and rows")
    parser.add_argument("--budget", type=int, default=128)
    args = parser.parse_args()
    if not args.file.is_file():
        parser.error(f"{args.file} is no file.")
    if shutil.which("tmux") is None:
        sys.exit("There is no tmux here.")
    book = args.file.resolve()
    print(f"{os.cpu_count()} cores; the load was {os.getloadavg()[0]:.1f} in the minute before")
    print(f"\n== screen, {args.size}, budget {args.budget}: to the end", flush=True)
    wrong = read_to_the_end(args.size, args.budget, book)
    print(f"\n== screen, {args.size}, budget {args.budget}: esc at a third", flush=True)
    wrong += read_a_third(args.size, args.budget, book)
    print(f"\n== run, budget {args.budget}", flush=True)
    wrong += read_in_run(args.budget, book)
    print("\n" + ("\n".join(wrong) if wrong else "All of it holds."))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
