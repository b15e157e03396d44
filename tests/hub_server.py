"""A stand-in for the Hugging Face hub on the loopback: as much of its API as huggingface_hub 2.4 uses.

`GET /api/models/ORG/NAME[/revision/REF]`, `GET /api/models/ORG/NAME/tree/REF`, `HEAD` and `GET
/ORG/NAME/resolve/REF/FILE` with ranges; and the ways in which a hub can refuse, be slow or break off.
"""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHUNK = 1 << 20


@dataclass
class Repository:
    """The files that are served, and how badly."""

    files: dict[str, bytes]
    gated: bool = False
    status: int = 200  # what the first question is answered with
    refuse_files: int = 200  # what downloads are answered with
    cuts: int = 0  # so many downloads of weights break off in the middle
    seconds_per_mib: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)  # sizes to claim, of files whose own is another
    hashes: dict[str, str] = field(default_factory=dict)  # the same for hashes
    more: dict[str, int] = field(default_factory=dict)
    """Bytes that are sent behind the contents of these files, which no listing names."""
    chunked: bool = False  # the length of a file is not said before it is sent


@dataclass
class Hub:
    """A running server."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """(method, path, range) of every request."""
    sent: dict[str, int] = field(default_factory=dict)  # bytes of each file that somebody took
    tokens: set[str] = field(default_factory=set)  # authorization headers that came

    def downloads(self, file: str) -> list[str]:
        """The ranges in which a file was fetched; "" is all of it."""
        return [part for method, path, part in self.requests if method == "GET" and path.endswith("/" + file)]


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub on a free port of the loopback, until the end of the block."""
    hub = Hub("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        do_GET = do_HEAD = lambda self: _answer(self, hub)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _answer(to: BaseHTTPRequestHandler, hub: Hub) -> None:
    path = to.path.split("?")[0]
    hub.requests.append((to.command, path, to.headers.get("Range", "")))
    hub.tokens.add(to.headers.get("Authorization", ""))
    parts = path.strip("/").split("/")
    asks_api = parts[:2] == ["api", "models"]
    name = "/".join(parts[2:4] if asks_api else parts[:2])
    repository = hub.repositories.get(name)
    if repository is None:  # what an anonymous question is told, so that private names stay private
        return _refuse(to, 401, "RepoNotFound", "Invalid username or password.")
    if asks_api and repository.status != 200:
        return _refuse(to, repository.status)
    if asks_api:
        return _send(
            to, json.dumps(_tree(repository) if "tree" in parts else _info(name, repository)).encode()
        )
    if repository.gated and to.headers.get("Authorization") != "Bearer hf_good":
        anonymous = "Authorization" not in to.headers
        return _refuse(to, 401 if anonymous else 403, "GatedRepo", "Access to this model is restricted.")
    file = "/".join(parts[4:])
    if file not in repository.files:
        return _refuse(to, 404, "EntryNotFound", "Entry not found")
    if repository.refuse_files != 200 and file.endswith(".safetensors"):
        return _refuse(to, repository.refuse_files)
    return _send_file(to, repository, file, hub.sent)


def _refuse(to: BaseHTTPRequestHandler, status: int, code: str = "", message: str = "") -> None:
    headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
    if status == 429:
        headers["Retry-After"] = "7"
    _send(to, json.dumps({"error": message or "no"}).encode(), status, headers)


def _send(
    to: BaseHTTPRequestHandler, body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> None:
    to.send_response(status)
    for key, value in {"Content-Type": "application/json", "Content-Length": str(len(body))}.items():
        to.send_header(key, value)
    for key, value in (headers or {}).items():
        to.send_header(key, value)
    to.end_headers()
    if to.command != "HEAD":
        to.wfile.write(body)


def _info(name: str, repository: Repository) -> dict[str, Any]:
    siblings = _entries(repository, "rfilename", "blobId", "sha256")
    gated = "manual" if repository.gated else False
    return {"id": name, "modelId": name, "sha": COMMIT, "gated": gated, "siblings": siblings}


def _tree(repository: Repository) -> list[dict[str, Any]]:
    return [entry | {"type": "file"} for entry in _entries(repository, "path", "oid", "oid")]


def _entries(repository: Repository, name: str, blob: str, digest: str) -> list[dict[str, Any]]:
    """The facts about each file, under the names that a question has for it."""
    entries = []
    for file, content in repository.files.items():
        size, hashed = repository.sizes.get(file, len(content)), hash_of(repository, file)
        entry: dict[str, Any] = {name: file, "size": size, blob: hashed}
        if _is_large(file):
            entry["lfs"] = {digest: hashed, "size": size, "pointerSize": 134}
        entries.append(entry)
    return entries


def _is_large(file: str) -> bool:
    return file.endswith((".safetensors", ".bin"))


def hash_of(repository: Repository, file: str) -> str:
    content = repository.files[file]
    if _is_large(file):
        return repository.hashes.get(file, hashlib.sha256(content).hexdigest())
    return repository.hashes.get(file, hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


def _send_file(to: BaseHTTPRequestHandler, repository: Repository, file: str, sent: dict[str, int]) -> None:
    content = repository.files[file] + bytes(repository.more.get(file, 0))
    wanted = to.headers.get("Range", "")
    start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
    body = content[start:]
    to.send_response(206 if wanted else 200)
    to.send_header("X-Repo-Commit", COMMIT)
    to.send_header("ETag", f'"{hash_of(repository, file)}"')
    to.send_header("Accept-Ranges", "bytes")
    if repository.chunked:
        to.send_header("Transfer-Encoding", "chunked")
    else:
        to.send_header("Content-Length", str(len(body)))
    if wanted:
        to.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    to.end_headers()
    if to.command == "HEAD":
        return
    cut = file.endswith(".safetensors") and repository.cuts > 0
    if cut:
        repository.cuts -= 1
        body = body[: len(body) * 2 // 3]
    try:
        for at in range(0, len(body), CHUNK):
            piece = body[at : at + CHUNK]
            to.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if repository.chunked else piece)
            sent[file] = sent.get(file, 0) + len(piece)
            time.sleep(repository.seconds_per_mib)
        if repository.chunked and not cut:
            to.wfile.write(b"0\r\n\r\n")
    except (BrokenPipeError, ConnectionResetError):
        cut = True
    to.close_connection = cut
