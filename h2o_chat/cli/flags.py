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


def _flag(panel: str, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


BY_POLICY = {"show_default": "by policy"}
BY_MAKERS = {"show_default": MAKERS}

FLAGS: dict[str, Any] = {
    "model": _flag(
        *(MODEL, "GGUF file, folder, ollama:NAME, short name, org/name; see models list.", "--model", "-m"),
        metavar="NAME",
        autocompletion=names_starting_with,
    ),
    "engine": _flag(MODEL, "What computes; auto: native, the fastest, on a CPU where it can."),
    "quantize": _flag(
        MODEL,
        "How weights are held; auto: native: int4 from half a billion parameters, else int8;"
        " transformers: nf4 where 16-bit weights pass 2 GiB.",
    ),
    "dtype": _flag(MODEL, "Precision; auto: the model's own, float32 on a CPU."),
    "device": _flag(MODEL, "auto, cpu, cuda or cuda:N."),
    "threads": _flag(MODEL, "CPU threads.", show_default="all cores but one"),
    "template": _flag(MODEL, "auto: the model's chat template if it has one, else plain: continue the text."),
    "think": _flag(
        MODEL, "Thoughts before an answer: on, off, low, medium, high, as the template knows them."
    ),
    "system": _flag(MODEL, "System prompt.", metavar="TEXT"),
    "budget": _flag(
        *(MEMORY, "Tokens kept per layer and KV head; on the screen smollm2 and pocket begin with 128."),
        *("--budget", "-b"),
        show_default="512; screen, run: to 2048, by the model",
    ),
    "policy": _flag(
        MEMORY,
        "What to forget first; others to compare with stand in docs/POLICY.md.",
        metavar="|".join(CHOSEN),
    ),
    "recent": _flag(MEMORY, "Newest tokens always kept.", **BY_POLICY),
    "sinks": _flag(MEMORY, "First tokens always kept.", **BY_POLICY),
    "chunk": _flag(MEMORY, "Prompt tokens read at once.", show_default="budget / 4, from 8 to 512"),
    "prefill": _flag(
        MEMORY, "full: a whole prompt attends to itself first, as in the paper; memory grows with it."
    ),
    "kv_dtype": _flag(MEMORY, "Precision of the memory; auto: as the model computes."),
    "recall": _flag(MEMORY, "auto: what a question asks for and was forgotten is read once more."),
    "temperature": _flag(ANSWER, "0: always the likeliest token.", **BY_MAKERS),
    "top_p": _flag(ANSWER, "Sample from this share of the probability.", **BY_MAKERS),
    "top_k": _flag(ANSWER, "Sample from so many tokens; 0: all.", **BY_MAKERS),
    "min_p": _flag(ANSWER, "Drop tokens below this share of the likeliest.", **BY_MAKERS),
    "repetition_penalty": _flag(ANSWER, "Above 1: repeat less.", **BY_MAKERS),
    "seed": _flag(ANSWER, "For sampling.", show_default="random, printed"),
    "max_tokens": _flag(ANSWER, "Longest answer."),
    "stop": _flag(ANSWER, "Ends an answer; may be repeated.", metavar="TEXT"),
    "ignore_eos": _flag(ANSWER, "Go on past the model's own end.", "--ignore-eos"),
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
