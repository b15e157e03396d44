"""Opening a conversation: the model, the engine, and the place on disk where it is kept."""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import QUANTIZE, Settings
from h2o_chat.base.errors import BusyError, ModelError, StoreError, UsageError
from h2o_chat.base.program_name import program_name
from h2o_chat.base.progress import Progress
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper
from h2o_chat.chat.conversation.message import progress_words
from h2o_chat.chat.conversation.remarks import fitted_budget
from h2o_chat.chat.conversation.tool_rounds import take_tools
from h2o_chat.chat.tools.mcp_servers import McpServers
from h2o_chat.events.events import Note, Session
from h2o_chat.models import smollm2
from h2o_chat.models.gguf import is_gguf
from h2o_chat.models.here import spelled_out
from h2o_chat.models.hub import Agree, agreed, stay_offline
from h2o_chat.models.makers import Makers, recommended
from h2o_chat.models.obtain import ASK_FROM_BYTES, fetch_missing, to_be_fetched
from h2o_chat.models.resolve import POCKET, LocalModel, find, look_up
from h2o_chat.remote.engine_here import engine_here
from h2o_chat.store import DATABASE, Store

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine

EARLIER = "pocket-1"
"""A pocket model that came with some earlier versions."""


@dataclass(frozen=True)
class ConversationPlace:
    folder: Path | None
    conversation: str | None = None
    """The one to go on with; None begins one."""
    notes: tuple[Note, ...] = ()


def stored(folder: Path, wanted: str) -> tuple[ConversationPlace, dict[str, Any]]:
    """The conversation to resume (its id, the beginning of it, or `last`), and the settings it was held with.

    Raises:
        UsageError: there is no such conversation.
        StoreError: it cannot be read (`BusyError`: it is open elsewhere).
    """
    with closing(Store(folder)) as store:
        conversation = store.find(wanted)
        store.claim(conversation).close()  # before minutes are spent on loading its model
        settings = store.settings(conversation) | {"model": _named_for(store, conversation)}
        known = {field.name for field in fields(Settings)}
        # Before there was another step every conversation was held with transformers'.
        held_with = {"engine": "transformers"} | {k: v for k, v in settings.items() if k in known}
        if held_with["engine"] == "native":  # where it can be had; else the cache is rebuilt, which is said
            held_with["engine"] = "auto"
        if begun := store.children(conversation, None):  # /system begins with another than was set
            held_with["system"] = begun[0].text if begun[0].role == "system" else None
        return ConversationPlace(folder, conversation, tuple(store.notes)), held_with


def _named_for(store: Store, conversation: str) -> str:
    """The name by which the model of a conversation is opened."""
    name = store.settings(conversation).get("model")
    if name in (None, EARLIER):  # nobody named one; or a pocket that is gone
        name = store.last_run(conversation).get("model", POCKET)
    return str(name)


def model_of(store: Store, conversation: str, present: str) -> str | None:
    """The name that opens the model of a conversation; None: it is the present one."""
    held_with = store.last_run(conversation).get("model", present)
    return None if held_with == present else _named_for(store, conversation)


def choose_unnamed(settings: Settings, folder: Path) -> tuple[Settings, str]:
    """The settings for a start at which no model was named, and a sentence about the choice.

    The model of the newest stored conversation, if one was named for it and it is here; otherwise none is
    set, which means SmolLM2 if that is here, else pocket.
    """
    last, gone = _last_named(folder), ""
    if last is not None:
        try:
            if isinstance(found := look_up(last), LocalModel):
                return replace(settings, model=last), f"{found.name}, the last one used"
            gone = f"; {last}, the last one used, is not here any more"
        except ModelError:
            gone = f"; {last}, the last one used, cannot be had any more"
    found = find(None)
    toy = f", a toy; to fetch one that talks: {program_name()} models pull {smollm2.NAME}"
    return settings, f"{found.name}{toy if found.name == POCKET else ''}{gone}"


def _last_named(folder: Path) -> str | None:
    """The model that somebody named for the newest stored conversation; None: nobody did."""
    if not (folder / DATABASE).is_file():
        return None
    try:
        with closing(Store(folder)) as store:
            model = store.settings(store.find("last")).get("model")
    except (StoreError, UsageError):  # none is there; or what is wrong is said where a conversation is stored
        return None
    return str(model) if model not in (None, EARLIER) else None


OpenEngine = Callable[[Settings, Progress], "Engine"]
"""`engine_here` or `engine_apart` of `remote`."""
Opener = Callable[[Progress], Chat]
"""Opens a conversation, stored or not, and reports its progress."""


def opener(
    settings: Settings,
    kept: ConversationPlace | None,
    open_engine: OpenEngine = engine_here,
    agree: Agree = agreed,
    named: set[str] | None = None,
) -> Opener:
    """Returns what opens the conversation, in whatever thread it is called.

    Args:
        kept: None keeps nothing, so that nobody can go back.
        agree: is asked before a model that is not here is fetched.
        named: the settings that a person named; it grows. Other sampling is what the model's makers
            recommend, and another budget what suits it. None: neither is used.
    """

    def open_chat(progress: Progress) -> Chat:
        progress("resolve", None)
        fetch_missing(settings.model, progress, agree)
        stay_offline()
        suited = settings if named is None else fitted_budget(settings, named)
        engine = open_engine(suited, progress)
        held = _as_held(suited, engine.session)
        keeper, unkept = None, None
        if kept is not None:
            try:
                keeper = Keeper(Store(kept.folder), kept.conversation, engine.session, _lasting(held))
            except StoreError as error:
                if kept.conversation is not None or isinstance(error, BusyError):
                    raise
                keeper, unkept = Keeper(Store(None), None, engine.session, _lasting(held)), error
        chat = Chat(engine, held, keeper)
        chat.makers = Makers() if named is None else Makers(recommended(find(settings.model)), named)
        if unkept:
            chat.unkept = unkept.message
            why = f"This conversation is not stored: {unkept.message}"
            chat.notes.append(Note(unkept.code, why, unkept.hint))
        elif kept and keeper:
            chat.notes += kept.notes
        if kept and keeper and kept.conversation is not None:
            progress("remember", 0.0)
            chat.resume(lambda so_far: progress(f"remember: {progress_words(so_far)}", so_far.share))
            if any(note.code == "pocket" for note in keeper.notes):
                keeper.save(engine, keeper.leaf)
            if chat.system != settings.system:
                what = "The conversation goes on with the system prompt that it began with."
                hint = "What was read stays. To begin with another: leave out --resume, or say /system TEXT."
                chat.notes.append(Note("system", what, hint))
        return chat

    return open_chat


def opener_of(
    settings: Settings,
    kept: ConversationPlace | None,
    open_engine: OpenEngine = engine_here,
    fitted: Callable[[Settings], Settings] = lambda settings: settings,
    named: set[str] | None = None,
) -> Callable[[str, str | None], Opener]:
    """Returns what makes an opener from a model's name, for a new conversation that is kept in the same
    place, or from that and the id of a stored one, which has the settings that it was held with.

    A small model that is not here is fetched; a large one only where the name is followed by `YES`, otherwise
    the opener raises UsageError, which says how large it is.

    Args:
        fitted: the settings as they suit their model; called while it is opened.
        named: as for `opener`.
    """

    def of(words: str, conversation: str | None = None) -> Opener:
        name = words.removesuffix(YES)
        place = None if kept is None else ConversationPlace(kept.folder)
        model = spelled_out(name, kept.folder) if kept and kept.folder else name
        asked, by_name = replace(settings, model=model), named
        if conversation is not None and kept is not None and kept.folder is not None:
            place, held_with = stored(kept.folder, conversation)
            asked = Settings(**asdict(settings) | held_with)
            by_name = named and named | held_with.keys()

        def small_alone(repository: str, missing_bytes: int, free_bytes: int) -> None:
            if missing_bytes >= ASK_FROM_BYTES:
                size = to_be_fetched(repository, missing_bytes, free_bytes)
                raise UsageError(size, f"/model {name}{YES} fetches it.")

        agree = small_alone if words == name else agreed
        return lambda progress: opener(fitted(asked), place, open_engine, agree, by_name)(progress)

    return of


def with_tools(open_chat: Opener, servers: McpServers) -> Opener:
    """Returns what opens the conversation and gives it tools."""

    def opened(progress: Progress) -> Chat:
        chat = open_chat(progress)
        progress("tools", None)
        take_tools(chat, servers)
        return chat

    return opened if servers.configured else open_chat


YES = " --yes"
"""Stands behind a model's name: it is fetched, however large it is."""


def _as_held(settings: Settings, session: Session) -> Settings:
    """The settings with the step and the weights that were chosen, so that resuming uses the same."""
    chosen = {"engine": session.engine}
    if session.quantization in QUANTIZE:  # fp4 only comes with the weights
        chosen["quantize"] = session.quantization
    return Settings(**asdict(settings) | chosen)


def _lasting(settings: Settings) -> dict[str, Any]:
    """Settings that mean the same from another working directory."""
    values = asdict(settings)
    if settings.model is not None:
        place = Path(settings.model).expanduser()
        if place.is_dir() or is_gguf(place):
            values["model"] = os.path.abspath(place)  # a link in the hub's cache leads to a hash
    return values
