"""The command line. Everything heavy is imported inside the commands: help and usage errors come at once."""

import atexit
import difflib
import gc
import os
import shlex
import sys
from collections import ChainMap
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

import h2o_chat
from h2o_chat.base import precedence
from h2o_chat.base.config import SCREEN_TOKENS, data_folder, tool_servers
from h2o_chat.base.errors import ExitCode, UsageError, name_of
from h2o_chat.base.system import PASSES_SOCKETS, RANKS
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.opening import ConversationPlace, opener, opener_of, stored, with_tools
from h2o_chat.chat.conversation.release import release_chat
from h2o_chat.chat.conversation.remarks import first_budget, fitted_budget
from h2o_chat.chat.tools.mcp_servers import McpServers, allow, refuse
from h2o_chat.cli import config_command, memory_command, models_command, run_batch, sessions_command
from h2o_chat.cli import run as running
from h2o_chat.cli.cluster_command import app as cluster
from h2o_chat.cli.commands import FetchYes, asking, ends, with_model
from h2o_chat.cli.doctor import doctor
from h2o_chat.cli.flags import asked_for, named_in, settings_of, takes_flags
from h2o_chat.cli.lab_commands import bench, evaluate
from h2o_chat.cli.prompt_input import grammar_of, prompt_of, read_script
from h2o_chat.cli.replay_command import demo, replay
from h2o_chat.cli.serve_command import serve
from h2o_chat.cli.typer_messages import PlainGroup, PlainTyper, help_command
from h2o_chat.events.recording import Recorder
from h2o_chat.models.hub import ask
from h2o_chat.models.makers import Makers, recommended
from h2o_chat.models.obtain import checked, obtain
from h2o_chat.models.resolve import LocalModel, find, look_up
from h2o_chat.remote.engine_here import engine_here

_ORDER = ("run", "serve", "models", "sessions", "memory", "config", "doctor", "replay", "demo", "lab")


class _Commands(PlainGroup):
    """Lists commands by how often they are needed; answers a question that is typed in place of one."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_ORDER, *(name for name in self.commands if name not in _ORDER)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        unknown = self.get_command(ctx, name) is None and not ctx.resilient_parsing
        if unknown and not difflib.get_close_matches(name, self.commands, cutoff=0.7):
            said = " ".join(takewhile(lambda word: not word.startswith("-"), args))
            if not said or any(character in '"$`\\!' or not character.isprintable() for character in said):
                said = "your question"  # without characters that a shell would read
            meant = f'To ask that: h2o-chat run "{said}". The chat screen is h2o-chat alone.'
            if os.path.exists(name):
                meant = f"To open that model: h2o-chat -m {shlex.quote(name_of(name))}"
            meant = "To list models: h2o-chat models list" if name in ("ls", "list") else meant
            ctx.fail(f"No such command {name!r}. {meant}")
        return super().resolve_command(ctx, args)


app = PlainTyper(
    name="h2o-chat",
    cls=_Commands,
    help="Chat with a local model whose memory never grows; alone: the chat screen.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_LAB = "Measure what forgetting costs on a model, and how fast it is here."
lab = PlainTyper(no_args_is_help=True, help=_LAB)
lab.add_typer(evaluate, name="eval")
lab.add_typer(bench, name="bench")
app.command(short_help="Answer over HTTP, as OpenAI's API does. Many machines: cluster up.")(serve)
app.add_typer(cluster, name="cluster", hidden=True)
app.add_typer(models_command.app, name="models", short_help="List, fetch, look at and remove models.")
app.add_typer(sessions_command.app, name="sessions", short_help="List, search, export stored conversations.")
app.add_typer(memory_command.app, name="memory", short_help="What is remembered for all conversations.")
app.add_typer(config_command.app, name="config", short_help="Show settings, and set them for good.")
app.command(short_help="Say what is here, what will run, and what to do about the rest.")(doctor)
app.command(short_help="Show a recorded conversation again; no model is needed.")(replay)
app.command(short_help="Show a recorded conversation that comes with the program.")(demo)
app.add_typer(lab, name="lab")
app.command("help", hidden=True)(ends(help_command))
app.add_typer(evaluate, name="eval", hidden=True)  # as it was called up to 0.2
app.add_typer(bench, name="bench", hidden=True)


_Resume = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Go on with a stored conversation: its id, or last.",
        autocompletion=sessions_command.ids_starting_with,
    ),
]
_Record = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Record it, for h2o-chat replay: a new or empty file.")
]


def _kept(resume: str | None, folder: Path | None) -> tuple[ConversationPlace, dict[str, Any]]:
    """The place where it is kept (no folder: in memory alone), and the settings of a resumed conversation."""
    if resume is None:
        return ConversationPlace(folder), {}
    if folder is None:
        raise UsageError("--resume and --no-store were given.", "What is resumed is stored: leave one out.")
    return stored(folder, resume)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"h2o-chat {h2o_chat.__version__}")
        raise typer.Exit


@app.callback()
@takes_flags(max_tokens=SCREEN_TOKENS)
def screen(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    resume: _Resume = None,
    data: sessions_command.Data = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep nothing of it on disk.")] = False,
    record: _Record = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Line by line: for screen readers and slow links.")
    ] = False,
    yes: FetchYes = False,
    *,
    given: ChainMap[str, Any],
) -> None:
    """Chat with a local model whose memory never grows; alone: the chat screen."""

    def work() -> ExitCode:
        if RANKS > 1 and context.invoked_subcommand != "run":
            raise UsageError("Under torchrun there is run alone.", 'torchrun ... -m h2o_chat run "..."')
        if context.invoked_subcommand is not None:
            return _no_flags_before(context)
        kept, held_with = _kept(resume, None if no_store else data_folder(data))
        settings, sampling = settings_of(given, held_with)
        named = named_in(given, held_with)
        asked = {*given.maps[0], *held_with}
        settings = with_model(settings, asked, data_folder(data))
        by_lines = plain or os.environ.get("TERM") == "dumb"
        streams = (sys.stdin, sys.stdout, sys.stderr)  # the screen is drawn on stderr
        in_browser = "TEXTUAL_DRIVER" in os.environ  # textual-serve sets it, and is the terminal
        if not (by_lines or in_browser) and not all(stream.isatty() for stream in streams):
            raise UsageError(
                "The chat screen needs a terminal, and this is none.",
                'Without one: h2o-chat --plain, or h2o-chat run "your question".',
            )
        model = look_up(settings.model)  # an error about a name or files belongs into the shell
        if isinstance(model, LocalModel):
            checked(model)
        else:
            ask(model.repository, asking(yes))
        recorder = Recorder(record) if record else None
        if recorder:
            recorder.open()
        servers = McpServers(tool_servers())
        if by_lines:
            from h2o_chat.cli.plain import run as plain_chat

            others = opener_of(settings, kept, named=named)
            return plain_chat(
                with_tools(opener(settings, kept, named=named), servers),
                lambda *which: with_tools(others(*which), servers),
                settings.model or find(None).name,
                sampling,
                servers,
                recorder,
            )
        from h2o_chat.remote.engine_apart import engine_apart
        from h2o_chat.tui import leaving
        from h2o_chat.tui.chat_app import ChatApp
        from h2o_chat.tui.leaving import leave_with_the_terminal
        from h2o_chat.tui.prompt.tool_question import ask_on_screen

        first = first_budget(settings, named)
        engine = engine_apart if PASSES_SOCKETS else engine_here
        others = opener_of(settings, kept, engine, lambda one: first_budget(one, named), named)
        screen = ChatApp(
            with_tools(opener(first, kept, engine, named=named), servers),
            first,
            sampling,
            recorder,
            folder=kept.folder,
            opener_of=lambda *which: with_tools(others(*which), servers),
            look=precedence.look(),
            keep_look=config_command.change,
        )
        servers.ask = partial(ask_on_screen, screen)
        leave_with_the_terminal()
        leaving.run(screen)
        if recorder:
            recorder.end()
        if isinstance(screen.chat, Chat):
            release_chat(screen.chat)
        return ExitCode.BUG if screen.return_code else ExitCode(screen.exit_code)

    code = running.ending(work)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _no_flags_before(context: typer.Context) -> ExitCode:
    """Refuses an option in front of a command: it would be lost silently."""
    name = context.invoked_subcommand
    for given in context.params:
        if asked_for(context, given):
            flag = "--" + given.replace("_", "-")
            hint = f"Leave it out: {name} does not take it."
            if _takes(context.command.get_command(context, name), flag):  # type: ignore[attr-defined]
                hint = f"Put it behind: h2o-chat {name} ... {flag}"
            raise UsageError(f"{flag} stands before {name}.", hint)
    return ExitCode.OK


def _takes(command: Any, flag: str) -> bool:
    """Whether a command, or one of those in its group, has an option."""
    below = getattr(command, "commands", {}).values()
    return any(flag in one.opts for one in command.params) or any(_takes(one, flag) for one in below)


@app.command(
    short_help="Ask once, or answer a script or a file, without a screen.",
    context_settings={"allow_extra_args": True},
)
@takes_flags()
def run(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="What to say; piped input is appended.")] = None,
    script: Annotated[
        Path | None, typer.Option(help="Turns from a file, separated by a line of ---.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Events on stdout, one JSON object a line.")] = False,
    events: Annotated[int, typer.Option(help="Tokens between two cache events; 0: none.")] = 16,
    resume: _Resume = None,
    save: Annotated[bool, typer.Option("--save", help="Store the conversation.")] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where --save and --resume keep it.")
    ] = None,
    record: _Record = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Many conversations at once: lines like {"id": "1", "prompt": "..."}; run again to go on.',
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            *("--output", "-o"),
            metavar="FILE",
            help="Where the answers go, a line of JSON each.",
            show_default="stdout",
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Conversations at once.", show_default="16, or what fits")
    ] = None,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", hidden=True)] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that are wrong.")] = False,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answers are JSON of this JSON schema.")
    ] = None,
    allow_tools: Annotated[
        bool, typer.Option("--allow-tools", help="It may call tools (--allow-tool NAME: this one).")
    ] = False,
    allow_tool: Annotated[list[str], typer.Option(metavar="NAME", hidden=True)] = [],  # noqa: B006
    yes: FetchYes = False,
    *,
    given: ChainMap[str, Any],
) -> None:
    """Ask once, play a script, or answer a file of prompts, without a screen; answers go to stdout."""

    def many() -> run_batch.BatchTask:
        assert batch is not None
        others = {"a prompt": prompt, "--script": script, "--json": json, "--resume": resume, "--save": save}
        others |= {"--schema": schema, "torchrun": RANKS > 1}
        for what, value in (others | {"--record": record}).items():
            if value:
                raise UsageError(f"--batch and {what} were given.", "Give one of them.")
        settings, sampling = settings_of(given, events_every=0)
        settings = with_model(settings, given.maps[0], data_folder(data))
        lines = run_batch.lines_in(batch, output, skip_bad)
        makers = Makers(recommended(obtain(settings.model, asking(yes))), named_in(given))
        return run_batch.BatchTask(settings, makers.complete(sampling), lines, output, rows, ray)

    if batch is not None:
        raise typer.Exit(run_batch.run_batch(many))

    def prepare() -> running.RunTask:
        for flag, value in (("--output", output), ("--rows", rows), ("--skip-bad", skip_bad), ("--ray", ray)):
            if value:
                raise UsageError(f"{flag} is of --batch alone.", "Give --batch FILE, or leave it out.")
        # In plain text nobody would read cache events.
        kept, held_with = _kept(resume, data_folder(data)) if save or resume else (None, {})
        settings, sampling = settings_of(given, held_with, events_every=events if json or record else 0)
        if context.args:
            hint = 'Quote it; a model is named by -m: h2o-chat run -m MODEL "question"'
            raise UsageError("The question is one argument, and more were given.", hint)
        turns, named = _turns(prompt, script), named_in(given, held_with)
        settings = with_model(settings, {*given.maps[0], *held_with}, data_folder(data))
        makers = Makers(recommended(obtain(settings.model, asking(yes))), named)
        grammar = grammar_of(schema) if schema else ""
        servers = McpServers(tool_servers())
        servers.allowed |= {*allow_tool}
        servers.ask = allow if allow_tools else refuse
        opened = with_tools(opener(fitted_budget(settings, named), kept), servers)
        return running.RunTask(opened, turns, makers.complete(sampling), grammar)

    raise typer.Exit(running.run(prepare, json, Recorder(record) if record else None))


def _turns(prompt: str | None, script: Path | None) -> list[str]:
    if script is not None:
        if prompt is not None:
            raise UsageError("A prompt and --script were given.", "Give one of them.")
        return read_script(script)
    nothing_piped = sys.stdin is None or sys.stdin.isatty()
    return [prompt_of(prompt, None if nothing_piped else sys.stdin.buffer)]


def main() -> None:
    """The console script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (until the end of the process)
    # Python's last collection would walk through all of torch: a second, and many on a loaded machine.
    atexit.register(gc.freeze)
    if RANKS > 1:
        from h2o_chat.engine.ranks import Rank

        rank = Rank()
        rank.end(lambda: running.ending(rank.follow) if rank.number else app(prog_name="h2o-chat"))
    app(prog_name="h2o-chat")
