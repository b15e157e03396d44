"""GET /v1/conversations/{id}/memory: what is still held of each message."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from h2o_chat.serve.api_errors import ApiError
from h2o_chat.serve.prefixes import tag_of
from h2o_chat.serve.server_recall import positions_of_json
from h2o_chat.serve.service import Service

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.saved_cache import RowSnapshot


def memory_of(service: Service, owner: bytes, id_: str) -> dict[str, Any]:
    """The memory after an answer, as JSON.

    Raises:
        ApiError: no memory of this key is kept after such an answer (any more).
    """
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
    """Tokens of each message that are held, on average over all KV heads.

    Args:
        ends: positions behind each message.
    """
    import torch

    slots = [part.states["positions"][:, 0] for part in state.cache.parts]  # [L, H, S] each
    borders, heads = torch.tensor(ends), sum(one.shape[0] * one.shape[1] for one in slots)
    at = torch.cat([one[one >= 0].cpu() for one in slots])
    counted = torch.bincount(torch.bucketize(at, borders, right=True), minlength=len(ends))
    return [round(count / heads, 2) for count in counted[: len(ends)].tolist()]
