"""`h2o-chat cluster up`: many replicas of the server on Ray, whose conversations move (docs/CLUSTER.md)."""

from collections import ChainMap
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.base.config import data_folder
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.commands import FetchYes, asking, ends, with_model, with_ray
from h2o_chat.cli.flags import named_in, settings_of, takes_flags
from h2o_chat.cli.serve_command import ADDRESS, checked, option, split
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.models.makers import Makers, recommended
from h2o_chat.models.obtain import obtain

WAITING, TIME_S = 64, 600.0
"""Requests that may wait in a replica, and the longest time of one."""
app = PlainTyper(no_args_is_help=True, help="Serve on several machines, by Ray.")


@app.command(short_help="Serve on all machines of a Ray cluster, or on this one.")
@takes_flags()
@ends
def up(
    context: typer.Context,
    replicas: Annotated[
        str, option(metavar="MIN:MAX", help="Processes that answer; Ray adds and removes them.")
    ] = "1:1",
    state: Annotated[
        str | None, option(metavar="URL", help="Where conversations are: a folder of all, or s3://...")
    ] = None,
    address: Annotated[str, option(metavar="HOST:PORT", help="Where every machine listens.")] = ADDRESS,
    ray: Annotated[
        str | None,
        option(metavar="ADDRESS", help="The Ray cluster.", show_default="the one here, or a new one"),
    ] = None,
    cpus: Annotated[float, option(min=0, help="Processors of a replica, for Ray.")] = 1,
    gpus: Annotated[float, option(min=0, help="GPUs of a replica, for Ray.")] = 0,
    keys: Annotated[Path | None, option(metavar="FILE", help="See serve.")] = None,
    tls_proxy: Annotated[bool, option("--tls-proxy", help="See serve.")] = False,
    rows: Annotated[int, option(min=1, help="Conversations at once, of a replica.")] = 16,
    grace: Annotated[float, option(min=0, help="Seconds for answers of a replica that goes.")] = 20,
    yes: FetchYes = False,
    *,
    given: ChainMap[str, Any],
) -> ExitCode:
    """Serve many conversations from several processes and machines; each goes on wherever it was kept."""
    settings, sampling = settings_of(given, events_every=0)
    fewest, _, most = (replicas if ":" in replicas else f"{replicas}:{replicas}").partition(":")
    if not (fewest.isdecimal() and most.isdecimal() and 0 < int(fewest) <= int(most)):
        raise UsageError(f"--replicas is {replicas!a}.", "It is MIN:MAX, such as 2:8.")
    replicas_on_ray = with_ray("replicas")
    from h2o_chat.serve.request_queue import Limits
    from h2o_chat.serve.shared_storage import Storage

    settings = with_model(settings, given.maps[0], data_folder(None))
    sampling = Makers(recommended(obtain(settings.model, asking(yes))), named_in(given)).complete(sampling)
    if settings.model and (here := Path(settings.model)).exists():  # replicas run in other folders
        settings = replace(settings, model=str(here.absolute()))
    if state is not None:
        state = state if "://" in state else str(Path(state).absolute())
        Storage(state)  # raises what is wrong with it before replicas start
    host, port = split(address)
    limits = Limits(WAITING, WAITING, TIME_S, grace)
    known_keys, loopback, limits = checked(host, keys, limits)
    scheme = "https" if tls_proxy else "http"
    task = replicas_on_ray.Task(settings, sampling, limits, known_keys, loopback, scheme, rows, state)
    application = replicas_on_ray.deployed(task, int(fewest), int(most), cpus, gpus)
    replicas_on_ray.up(application, host, port, ray)
    return ExitCode.OK
