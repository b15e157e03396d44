"""What a layer's `update()` gives to the attention function, so that no other function attends by mistake."""

from typing import TYPE_CHECKING, Any, NoReturn

from torch import Tensor

from h2o_chat.base.errors import ModelError

if TYPE_CHECKING:
    from h2o_chat.cache.layer import H2OLayer


class Handoff:
    """Instead of tensors: a layer, and the new keys and values [R, H, N, D] that it is to take.

    Only our own attention function unwraps it. Any other one would attend to the new tokens alone, silently;
    whatever it does to this object raises instead.
    """

    def __init__(self, layer: "H2OLayer", keys: Tensor, values: Tensor) -> None:
        self.layer, self.keys, self.values = layer, keys, values

    def __getattr__(self, name: str) -> NoReturn:
        _wrong_attention()

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        _wrong_attention()


def _wrong_attention() -> NoReturn:
    raise ModelError(
        "An H2OCache was given to a model that was not loaded with its attention.",
        'Load it with from_pretrained(..., attn_implementation="h2o") after `from h2o_chat import H2OCache`,'
        ' or call model.set_attn_implementation("h2o").',
    )
