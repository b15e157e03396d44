"""Flags shared by the screen and `run`."""

import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from h2o_chat.base import precedence
from h2o_chat.base.config import CHOSEN, Sampling, Settings
from h2o_chat.cli.typer_messages import ANSWER, MEMORY, MODEL
from h2o_chat.models.resolve import names_starting_with

Kind = TypeVar("Kind", Settings, Sampling)

MAKERS = "as the makers recommend"

FLAGS: dict[str, Any] = {
    "model": typer.Option(
        *("--model", "-m"),
        metavar="NAME",
        help="Folder, short name or org/name; see h2o-chat models.",
        autocompletion=names_starting_with,
        rich_help_panel=MODEL,
    ),
    "engine": typer.Option(
        help="What computes; auto: native, the fastest, on a CPU where it can.", rich_help_panel=MODEL
    ),
    "quantize": typer.Option(
        help="How weights are held; auto: native: int4 from half a billion parameters, else int8;"
        " transformers: nf4 where 16-bit weights pass 2 GiB.",
        rich_help_panel=MODEL,
    ),
    "dtype": typer.Option(help="Precision; auto: the model's own, float32 on a CPU.", rich_help_panel=MODEL),
    "device": typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=MODEL),
    "threads": typer.Option(help="CPU threads.", show_default="all cores but one", rich_help_panel=MODEL),
    "template": typer.Option(
        help="auto: the model's chat template if it has one, else plain: continue the text.",
        rich_help_panel=MODEL,
    ),
    "system": typer.Option(metavar="TEXT", help="System prompt.", rich_help_panel=MODEL),
    "budget": typer.Option(
        *("--budget", "-b"),
        help="Tokens kept per layer and KV head; on the screen smollm2 and pocket begin with 128.",
        show_default="512; screen, run: to 2048, by the model",
        rich_help_panel=MEMORY,
    ),
    "policy": typer.Option(
        metavar="|".join(CHOSEN),
        help="What to forget first; others to compare with stand in docs/POLICY.md.",
        rich_help_panel=MEMORY,
    ),
    "recent": typer.Option(
        help="Newest tokens always kept.", show_default="by policy", rich_help_panel=MEMORY
    ),
    "sinks": typer.Option(help="First tokens always kept.", show_default="by policy", rich_help_panel=MEMORY),
    "chunk": typer.Option(
        help="Prompt tokens read at once.", show_default="budget / 4, at least 8", rich_help_panel=MEMORY
    ),
    "prefill": typer.Option(
        help="full: a whole prompt attends to itself first, as in the paper; memory grows with it.",
        rich_help_panel=MEMORY,
    ),
    "kv_dtype": typer.Option(
        help="Precision of the memory; auto: as the model computes.", rich_help_panel=MEMORY
    ),
    "recall": typer.Option(
        help="auto: what a question asks for and was forgotten is read once more.", rich_help_panel=MEMORY
    ),
    "temperature": typer.Option(
        help="0: always the likeliest token.", show_default=MAKERS, rich_help_panel=ANSWER
    ),
    "top_p": typer.Option(
        help="Sample from this share of the probability.", show_default=MAKERS, rich_help_panel=ANSWER
    ),
    "top_k": typer.Option(
        help="Sample from so many tokens; 0: all.", show_default=MAKERS, rich_help_panel=ANSWER
    ),
    "min_p": typer.Option(
        help="Drop tokens below this share of the likeliest.", show_default=MAKERS, rich_help_panel=ANSWER
    ),
    "repetition_penalty": typer.Option(
        help="Above 1: repeat less.", show_default=MAKERS, rich_help_panel=ANSWER
    ),
    "seed": typer.Option(help="For sampling.", show_default="random, printed", rich_help_panel=ANSWER),
    "max_tokens": typer.Option(help="Longest answer.", rich_help_panel=ANSWER),
    "stop": typer.Option(metavar="TEXT", help="Ends an answer; may be repeated.", rich_help_panel=ANSWER),
    "ignore_eos": typer.Option(
        "--ignore-eos", help="Go on past the model's own end.", rich_help_panel=ANSWER
    ),
}
"""Fields of `Settings` and `Sampling`, which have the defaults and checks."""


def takes_flags(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command, whose first parameter is the context, all shared flags.

    It gets `given`: the values on the command line, without defaults.
    """
    hints = get_type_hints(Settings) | get_type_hints(Sampling) | {"stop": list[str]}
    known = {f.name: f.default for one in (Settings, Sampling) for f in fields(one)} | {"stop": []} | defaults
    flags = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=known[name],
            annotation=Annotated[hints[name], option],
        )
        for name, option in FLAGS.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]

        def with_flags(context: typer.Context, **values: Any) -> None:
            shared = {name: values.pop(name) for name in FLAGS}
            asked = {name: value for name, value in shared.items() if asked_for(context, name)}
            command(context, given=ChainMap(asked, shared), **values)

        with_flags.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        with_flags.__name__, with_flags.__doc__ = command.__name__, command.__doc__
        return with_flags

    return decorate


def asked_for(context: typer.Context, name: str) -> bool:
    """Whether a flag stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def settings_of(
    given: ChainMap[str, Any], held_with: dict[str, Any] | None = None, **more: Any
) -> tuple[Settings, Sampling]:
    """Checked settings: the command line, then those of the resumed conversation, then the environment,
    `config.toml` and the defaults.

    Raises:
        UsageError: a value outside its range, in whichever of them.
    """
    asked, built_in = given.maps
    held = dict(held_with or {})
    if "engine" in asked or "quantize" in asked:  # one decides what the other may be
        held = {name: value for name, value in held.items() if name not in ("engine", "quantize")}
    values = {**built_in, **precedence.below_flags(), **held, **asked, **more}
    values["stop"] = tuple(precedence.typed(text, "--stop") for text in values["stop"])
    if values.get("system") is not None:
        values["system"] = precedence.typed(values["system"], "--system")
    return _only(Settings, values), _only(Sampling, values)


def named_in(given: ChainMap[str, Any], held_with: Iterable[str] = ()) -> set[str]:
    """The settings that a person named: by a flag, in the environment, in `config.toml`, or before.

    Args:
        held_with: the settings of the resumed conversation.

    Raises:
        UsageError: a value outside its range.
    """
    return {*given.maps[0], *precedence.below_flags(), *held_with}


def _only(kind: type[Kind], values: dict[str, Any]) -> Kind:
    return kind(**{f.name: values[f.name] for f in fields(kind) if f.name in values})
