"""Memories over HTTP: GET /slots and POST /slots/{id}?action=save|restore|erase, as llama-server has them;
GET /v1/conversations/{id}/memory: what is still held of each message.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from h2o_chat.base.errors import SavedCacheError, StoreError
from h2o_chat.serve.api_errors import ApiError, wrong
from h2o_chat.serve.chat_request import object_of
from h2o_chat.serve.chat_response import Json
from h2o_chat.serve.prefixes import Memory, tag_of
from h2o_chat.serve.request_bodies import Bodies, seen
from h2o_chat.serve.saved_memories import Saved
from h2o_chat.serve.server_recall import positions_of_json
from h2o_chat.serve.service import Service

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.saved_cache import RowSnapshot

NAME_BYTES = 64 << 10
"""Largest body of these requests."""


class SlotRoutes:
    """The endpoints for rows, which llama-server calls slots; `saved` is None: nothing is saved on disk."""

    def __init__(self, service: Service, saved: Saved | None, bodies: Bodies) -> None:
        self._service, self._saved, self._bodies = service, saved, bodies
        self._disk = ThreadPoolExecutor(1, "disk")
        """Writes memories of many MB outside of the event loop."""

    async def all(self, request: Request) -> Response:
        """GET /slots; memories of other keys are not shown."""
        service = self._service
        found = [
            {
                "id": number,
                "is_processing": seated is not None,
                "tokens": kept.tokens if (kept := self._held(number, request.scope["owner"])) else 0,
                "budget": service.session.budget,
                "row_bytes": service.row_bytes,
                "snapshot_bytes": service.snapshot_bytes,
                "snapshots": len(service.prefixes),
                "snapshots_limit": service.prefixes.most,
            }
            for number, seated in enumerate(service.seated)
        ]
        return Json(found)

    async def act(self, request: Request) -> Response:
        """POST /slots/{id}: saves, restores or erases the memory of a row."""
        number, owner = self._number(request), request.scope["owner"]
        action = request.query_params.get("action")
        raw = await self._bodies.read(request, NAME_BYTES)  # small enough to parse in the event loop
        self._bodies.free(owner, len(raw))
        began = time.perf_counter()
        match action:
            case "save":
                name, saved, kept = object_of(raw).get("filename"), self._folder(), self._own(number, owner)
                size = await self._on_disk(saved.write_session, owner, name, kept)
                told: dict[str, Any] = {"filename": name, "n_saved": kept.tokens, "n_written": size}
            case "restore":
                name, saved = object_of(raw).get("filename"), self._folder()
                if not self._service.prefixes.most:
                    raise ApiError(501, "This server keeps no snapshots: --snapshots 0.", "no_snapshots")
                kept, size = await self._on_disk(saved.session, owner, name)
                self._service.prefixes.add(kept)
                self._service.slots[number] = owner, kept.chain
                told = {"filename": name, "n_restored": kept.tokens, "n_read": size}
            case "erase":
                kept = self._own(number, owner)
                at, slots = self._service.slots[number], self._service.slots
                slots[number] = None
                if at not in slots:  # another slot may hold the same conversation
                    self._service.prefixes.drop(kept)
                told = {"n_erased": kept.tokens}
            case _:
                raise wrong("action", f"action is {seen(action)}. One of: save, restore, erase.")
        if action != "erase":
            told["timings"] = {f"{action}_ms": round(1000 * (time.perf_counter() - began), 3)}
        return Json({"id_slot": number, **told})

    async def _on_disk(self, work: Any, *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)
        except (SavedCacheError, StoreError) as error:
            raise ApiError(409, error.message, error.code, "filename") from error
        except OSError as error:
            raise ApiError(507, f"Not written or read: {error.strerror or error}.", "disk") from error

    def _folder(self) -> Saved:
        if self._saved is None:
            raise ApiError(501, "This server keeps nothing on disk: --no-store.", "no_store")
        return self._saved

    def _number(self, request: Request) -> int:
        text, rows = request.path_params["id"], len(self._service.seated)
        if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) < rows):
            raise ApiError(404, f"No slot {ascii(text)[:40]}: 0 to {rows - 1}.", "no_slot")
        if self._service.seated[int(text)] is not None:
            raise ApiError(409, f"Slot {int(text)} is in use. Try again after its answer.", "slot_busy")
        return int(text)

    def _held(self, number: int, owner: bytes) -> Memory | None:
        """The memory of a row, if it is kept and belongs to this key."""
        of, hashed = self._service.slots[number] or (None, None)
        return self._service.prefixes.get(hashed) if of == owner else None

    def _own(self, number: int, owner: bytes) -> Memory:
        kept = self._held(number, owner)
        if kept is None or kept.state is None:
            raise ApiError(404, f"Slot {number} holds nothing of this key.", "slot_empty")
        return kept


def memory_of(service: Service, owner: bytes, id_: str) -> dict[str, Any]:
    """The memory after the answer `id_`, as JSON; raises ApiError where none of this key is kept."""
    of = tag_of(owner)
    found = next((one for one in service.prefixes.all() if (one.id, one.tag) == (id_, of)), None)
    if found is None or found.state is None:
        raise ApiError(
            404, f"No memory is kept of {id_[:60]!a}: {service.prefixes.most} are at most.", "not_found"
        )
    cache, about = found.state.cache, found.state.about
    ends = about[0] if about else []
    places = positions_of_json(about, len(ends), cache.fed + len(found.state.pending))
    again = places.again if places else {}
    each = zip([0, *ends], ends, _held_of_each(found.state, ends), strict=False)
    return {
        "id": id_,
        "object": "conversation.memory",
        "policy": service.session.policy,
        "budget": service.session.budget,
        "seen": cache.fed,
        "held": cache.clocks[0].in_use,
        "evicted": cache.fed - cache.clocks[0].in_use,
        "messages": [
            {
                "index": at,
                "tokens": end - begin,
                "held": held,
                "recalled": [{"index": one.index, "words": one.words} for one in again.get(at, ())],
            }
            for at, (begin, end, held) in enumerate(each)
        ],
    }


def _held_of_each(state: "RowSnapshot", ends: Sequence[int]) -> list[float]:
    """Tokens of each message that are held, on average over all KV heads; `ends`: positions behind each."""
    import torch

    slots = [part.states["positions"][:, 0] for part in state.cache.parts]  # [L, H, S] each
    borders, heads = torch.tensor(ends), sum(one.shape[0] * one.shape[1] for one in slots)
    at = torch.cat([one[one >= 0].cpu() for one in slots])
    counted = torch.bincount(torch.bucketize(at, borders, right=True), minlength=len(ends))
    return [round(count / heads, 2) for count in counted[: len(ends)].tolist()]
