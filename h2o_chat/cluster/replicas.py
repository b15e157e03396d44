"""Replicas: each a `Service` in a process of Ray's, behind the application of `serve`."""

import asyncio
import sys
import threading
from typing import Any, NamedTuple

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.models.hub import stay_offline
from h2o_chat.remote.engine_here import batch_here
from h2o_chat.serve.guard import Keys
from h2o_chat.serve.prefixes import Prefixes
from h2o_chat.serve.protocol import connections_at_most
from h2o_chat.serve.request_queue import Limits
from h2o_chat.serve.server import CUT_S, SWITCH_S, application, give_back, leaving, share
from h2o_chat.serve.service import Service

NAME = "h2o-chat"
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
"""Sends the requests of one `x-session-id` to one replica."""
DELAYS = {"upscale_delay_s": 10, "downscale_delay_s": 60}
"""Shorter than Ray's own: conversations move in a moment."""
LEAVING_S, WRITING_S = 0.2, 20.0
"""Seconds between two looks whether Ray wants it to go, and for writing once answers have ended."""


class Task(NamedTuple):
    settings: Settings
    sampling: Sampling
    limits: Limits
    keys: Keys
    loopback: bool
    scheme: str
    rows: int
    state: str | None


class Replica:
    """Started by Ray Serve; its event loop is the service's."""

    async def __init__(self, task: Task) -> None:  # type: ignore[misc]
        give_back()
        stay_offline()
        sys.setswitchinterval(SWITCH_S)
        batch = batch_here(task.settings, task.rows, sys.maxsize, lambda *_: None)
        from h2o_chat.engine.row_capacity import snapshots_for

        prefixes = Prefixes(snapshots_for(batch.reader, batch.runner.rows, None))
        self.service = Service(batch, task.settings, task.sampling, task.limits, prefixes)
        if task.state is not None:
            share(self.service, task.state)
        self._app = application(
            self.service, None, task.keys, task.loopback, task.scheme, connections_at_most()
        )
        self._watching = asyncio.create_task(self._watch())

    def __serve_build_asgi_app__(self) -> Any:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "lifespan":
                return await self._app(scope, receive, send)
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})

        return answer

    async def _watch(self) -> None:
        """Cuts what is still answered at the end of the grace; Ray waits for it, and would kill it."""
        actor = ray._private.worker.global_worker.actors[ray._private.worker.global_worker.actor_id]
        while not actor._replica_impl._shutting_down:
            await asyncio.sleep(LEAVING_S)
        await asyncio.sleep(self.service.limits.grace_s)
        self.service.end()
        self.service.cut()

    def check_health(self) -> None:
        if self.service.broken:
            raise RuntimeError("the engine has failed")

    async def __del__(self) -> None:
        """Called by Ray, once all requests have ended."""
        for _ in range(int(WRITING_S / LEAVING_S)):
            if not (self.service.shared and self.service.shared.pending):
                return
            await asyncio.sleep(LEAVING_S)
        sys.stderr.write("h2o-chat: answers could not be written to the shared storage\n")


def deployed(task: Task, fewest: int, most: int, cpus: float, gpus: float) -> serve.Application:
    """The application; Ray adds a replica where more requests are under way than there are rows."""
    scaled = {"min_replicas": fewest, "max_replicas": most, "target_ongoing_requests": task.rows}
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name=NAME,
        autoscaling_config=scaled | DELAYS,
        max_ongoing_requests=2 * task.rows,
        graceful_shutdown_timeout_s=task.limits.grace_s + CUT_S + WRITING_S,
        graceful_shutdown_wait_loop_s=0.5,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
    )
    return deployment.bind(task)


def up(app: serve.Application, host: str, port: int, address: str | None) -> None:
    """Serves by the Ray cluster at `address` until a signal, then lets all replicas finish."""
    asked = threading.Event()
    ray.init(address, ignore_reinit_error=True)
    serve.start(proxy_location="EveryNode", http_options={"host": host, "port": port})
    serve.run(app, name=NAME, route_prefix="/")
    with leaving(asked.set):
        sys.stderr.write(f"h2o-chat: serving http://{host}:{port}/v1 on every node\n  ctrl+c ends it\n")
        sys.stderr.flush()
        asked.wait()
        sys.stderr.write("h2o-chat: ending; replicas finish their answers\n")
        serve.delete(NAME)  # shutdown alone would not wait for them
        serve.shutdown()
        ray.shutdown()
