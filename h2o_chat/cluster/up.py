"""Runs the server as an application of Ray Serve, until a signal."""

import os
import sys
import threading

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from h2o_chat.base.system import handling
from h2o_chat.cluster.replica import WRITING_S, Replica, Task
from h2o_chat.serve.server import CUT_S

NAME = "h2o-chat"
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
"""Sends the requests of one `x-session-id` to one replica."""
DELAYS = {"upscale_delay_s": 10, "downscale_delay_s": 60}
"""Shorter than Ray's own: conversations move in a moment."""


def application(task: Task, fewest: int, most: int, cpus: float, gpus: float) -> serve.Application:
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

    def handle(number: int, _: object) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()

    ray.init(address, ignore_reinit_error=True)
    serve.start(proxy_location="EveryNode", http_options={"host": host, "port": port})
    serve.run(app, name=NAME, route_prefix="/")
    with handling(handle):
        sys.stderr.write(f"h2o-chat: serving http://{host}:{port}/v1 on every node\n  ctrl+c ends it\n")
        sys.stderr.flush()
        asked.wait()
        sys.stderr.write("h2o-chat: ending; replicas finish their answers\n")
        serve.delete(NAME)  # shutdown alone would not wait for them
        serve.shutdown()
        ray.shutdown()
