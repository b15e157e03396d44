"""`h2o-chat serve`: many conversations at once, over HTTP.

The contract: stdout is empty; notes and errors go to stderr, but no key and no word of a conversation; a
signal ends it in order, a second one at once; the exit code is one of `ExitCode`.
"""

import asyncio
import sys
from collections import ChainMap
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2o_chat.base.config import data_folder
from h2o_chat.base.errors import ExitCode, UsageError, name_of, refusal
from h2o_chat.base.progress import progress_bar
from h2o_chat.chat.recall.recall import POLICIES_WITHOUT_RECALL
from h2o_chat.cli.commands import FetchYes, asking, ends, with_model
from h2o_chat.cli.flags import named_in, settings_of, takes_flags
from h2o_chat.cli.run import note_session
from h2o_chat.models.hub import stay_offline
from h2o_chat.models.makers import Makers, recommended
from h2o_chat.models.obtain import obtain
from h2o_chat.remote.engine_here import batch_here

if TYPE_CHECKING:
    from h2o_chat.serve.guard import Keys
    from h2o_chat.serve.request_queue import Limits

ADDRESS = "127.0.0.1:8080"
CLOSE_S = 5.0
"""Seconds for the running step, once the server has ended."""
option = partial(typer.Option, rich_help_panel="Server")


@takes_flags()
@ends
def serve(
    context: typer.Context,
    address: Annotated[
        str, option(metavar="HOST:PORT", help="Where it listens; what is not this machine alone needs keys.")
    ] = ADDRESS,
    host: Annotated[str | None, option(help="The host of --address.")] = None,
    port: Annotated[int | None, option(min=0, max=65535, help="The port of --address.")] = None,
    any_model: Annotated[bool, option("--any-model", help="Requests may name any model.")] = False,
    keys: Annotated[
        Path | None, option(metavar="FILE", help="Keys, one a line; or one in H2O_CHAT_KEY.")
    ] = None,
    tls_proxy: Annotated[
        bool, option("--tls-proxy", help="A proxy with TLS stands in front: pages have https.")
    ] = False,
    rows: Annotated[
        int | None, option(min=1, help="Conversations at once.", show_default="16, or what fits")
    ] = None,
    snapshots: Annotated[
        int | None, option(min=0, help="Conversations kept, to go on from.", show_default="64, or 2 GiB")
    ] = None,
    queue: Annotated[int, option(min=1, help="Requests that may wait, of all keys.")] = 64,
    timeout: Annotated[float, option(min=0.1, help="Seconds for a request, waiting included.")] = 600,
    grace: Annotated[float, option(min=0, help="Seconds for what is answered when it is told to end.")] = 20,
    data: Annotated[Path | None, option(metavar="FOLDER", help="Where rows are kept when it ends.")] = None,
    state: Annotated[
        str | None, option(metavar="URL", help="A folder, or s3://...: servers share conversations there.")
    ] = None,
    no_store: Annotated[bool, option("--no-store", help="Keep nothing on disk.")] = False,
    yes: FetchYes = False,
    *,
    given: ChainMap[str, Any],
) -> ExitCode:
    """Serve many conversations over HTTP, as OpenAI's clients and those of llama-server speak it."""
    settings, sampling = settings_of(given, events_every=0)
    try:
        from h2o_chat.serve import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "h11"):
            raise
        raise UsageError(
            f"A server needs starlette and uvicorn, and {error.name} is not installed.",
            "pip install 'h2o-chat[serve]'",
        ) from error
    from h2o_chat.serve.prefixes import Prefixes
    from h2o_chat.serve.request_queue import Limits
    from h2o_chat.serve.saved_memories import Saved
    from h2o_chat.serve.service import Service

    settings = with_model(settings, given.maps[0], data_folder(data))
    sampling = Makers(recommended(obtain(settings.model, asking(yes))), named_in(given)).complete(sampling)
    folder = None if no_store else data_folder(data)
    scheme = "https" if tls_proxy else "http"
    usual_host, usual_port = split(address)
    host, port = host or usual_host, usual_port if port is None else port
    known_keys, loopback, limits = checked(host, keys, Limits(queue, queue, timeout, grace))
    try:
        at = server.listen(host, port)
    except OSError as error:
        raise UsageError(
            f"{host}:{port} cannot be had: {refusal(error)}.", "Choose another: --address 127.0.0.1:0."
        ) from error
    with at:
        server.give_back()
        with progress_bar() as progress:
            stay_offline()
            batch = batch_here(settings, rows, sys.maxsize, progress)
        from h2o_chat.engine.row_capacity import snapshots_for

        prefixes = Prefixes(snapshots_for(batch.reader, batch.runner.rows, snapshots))
        shown = f"[{host}]" if ":" in host else host

        def service_of() -> tuple[Service, Saved | None]:
            service = Service(batch, settings, sampling, limits, prefixes)
            if any_model:
                service.served = replace(service.served, names=frozenset())
            saved = None
            if folder is not None:
                saved = Saved(folder, service.context, batch)
                service.load_memory = saved.read
                for kept in saved.rows():
                    prefixes.add(kept)
            if state is not None:
                server.share(service, state)
            note_session(replace(service.session, template=service.template.name), sampling)
            sys.stderr.write(
                f"h2o-chat: {batch.runner.rows} rows of {service.row_bytes / 1e6:,.1f} MB,"
                f" {prefixes.most} snapshots of {service.snapshot_bytes / 1e6:,.1f} MB\n"
            )
            if settings.recall != "off" and settings.policy not in POLICIES_WITHOUT_RECALL:
                sys.stderr.write("h2o-chat: what a question asks for and was forgotten is recalled")
                sys.stderr.write(" (--recall off: not)\n")
            return service, saved

        def ready() -> None:
            sys.stderr.write(f"h2o-chat: serving http://{shown}:{at.getsockname()[1]}/v1\n  ctrl+c ends it\n")
            sys.stderr.flush()

        service, saved = asyncio.run(server.serve(service_of, known_keys, loopback, scheme, at, ready))
    service.close(CLOSE_S)
    if service.shared and service.shared.pending:
        sys.stderr.write(f"h2o-chat: {service.shared.pending:,} answers are not written to {state}\n")
    if saved is not None:
        saved.write_rows(prefixes.all())
        sys.stderr.write(f"h2o-chat: {len(prefixes):,} conversations are kept in {name_of(saved.folder)}\n")
    return ExitCode.BUG if service.broken else ExitCode.OK


def checked(host: str, keys_file: Path | None, limits: "Limits") -> tuple["Keys", bool, "Limits"]:
    """The keys, whether only this machine reaches the host (others need keys), and each key's limits."""
    from h2o_chat.serve.guard import is_loopback, read_keys

    keys, loopback = read_keys(keys_file), is_loopback(host)
    if not loopback and not keys:
        raise UsageError(
            f"{host} can be reached by others, and there is no key.",
            "Give --keys FILE, or a key in H2O_CHAT_KEY; the connection is not encrypted.",
        )
    sharing = max(1, len(keys))
    return keys, loopback, replace(limits, waiting_of_key=max(1, limits.waiting // sharing), keys=sharing)


def split(address: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        UsageError: it is no such address.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"--address is {address!a}.", f"It is HOST:PORT, such as {ADDRESS}.")
    return host, int(port)
