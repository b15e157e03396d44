"""Short names of models, with their sizes before anything is fetched. Standard library only.

All families here route attention through transformers' `AttentionInterface`; a test checks every row with
`check_family`. The column `gated` is a warning: the hub decides.
"""

from dataclasses import dataclass

NF4_BYTES = 0.5 + 4 / 64
"""Bytes per weight: four bits, and one float32 scale for every 64 weights."""


@dataclass(frozen=True)
class Alias:
    """A model with a short name."""

    name: str
    repository: str
    family: str
    """transformers' model type."""
    parameters: int
    embedding: int
    """Parameters of the embedding, and of the output layer if it is separate: they are not quantised."""
    window: int
    """Longest context of its training, in tokens."""
    gated: bool = False
    """Its licence has to be accepted on the hub, which needs a token."""
    chat: bool = True
    """Whether its tokenizer has a chat template."""

    @property
    def bytes_16(self) -> int:
        """Bytes of the weights in half precision, about the size of the download."""
        return 2 * self.parameters

    @property
    def bytes_4(self) -> int:
        """Bytes of the weights in nf4."""
        return 2 * self.embedding + int(NF4_BYTES * (self.parameters - self.embedding))


def fits(alias: Alias, memory_bytes: int) -> str:
    """The precision at which the weights leave a fifth of the memory free: "16 bit", "4 bit" or "no"."""
    for name, needed in (("16 bit", alias.bytes_16), ("4 bit", alias.bytes_4)):
        if needed < 0.8 * memory_bytes:
            return name
    return "no"


def _llama(name: str, repository: str, parameters: int, embedding: int, window: int) -> Alias:
    """A model of Meta: all are gated."""
    chat = "instruct" in name or "chat" in name
    return Alias(name, f"meta-llama/{repository}", "llama", parameters, embedding, window, True, chat)


def _qwen(name: str, repository: str, parameters: int, embedding: int) -> Alias:
    family, window = ("qwen2", 32_768) if name.startswith("qwen2") else ("qwen3", 40_960)
    return Alias(name, f"Qwen/{repository}", family, parameters, embedding, window)


def _base(name: str, repository: str, family: str, parameters: int, embedding: int, window: int) -> Alias:
    """A base model, which has no chat template."""
    return Alias(name, repository, family, parameters, embedding, window, chat=False)


_TABLE = (
    _base("llama-7b", "huggyllama/llama-7b", "llama", 6_738_415_616, 262_144_000, 2_048),
    _base("llama-13b", "huggyllama/llama-13b", "llama", 13_015_864_320, 327_680_000, 2_048),
    _llama("llama-2-7b", "Llama-2-7b-hf", 6_738_415_616, 262_144_000, 4_096),
    _llama("llama-2-7b-chat", "Llama-2-7b-chat-hf", 6_738_415_616, 262_144_000, 4_096),
    _llama("llama-2-13b-chat", "Llama-2-13b-chat-hf", 13_015_864_320, 327_680_000, 4_096),
    _llama("llama-3-8b-instruct", "Meta-Llama-3-8B-Instruct", 8_030_261_248, 1_050_673_152, 8_192),
    _llama("llama-3.1-8b-instruct", "Llama-3.1-8B-Instruct", 8_030_261_248, 1_050_673_152, 131_072),
    _llama("llama-3.2-1b-instruct", "Llama-3.2-1B-Instruct", 1_235_814_400, 262_668_288, 131_072),
    _llama("llama-3.2-3b-instruct", "Llama-3.2-3B-Instruct", 3_212_749_824, 394_002_432, 131_072),
    _llama("llama-3.3-70b-instruct", "Llama-3.3-70B-Instruct", 70_553_706_496, 2_101_346_304, 131_072),
    _base("mistral-7b", "mistralai/Mistral-7B-v0.1", "mistral", 7_241_732_096, 262_144_000, 32_768),
    Alias(
        "mistral-7b-instruct",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistral",
        7_248_023_552,
        268_435_456,
        32_768,
    ),
    _qwen("qwen2.5-0.5b-instruct", "Qwen2.5-0.5B-Instruct", 494_032_768, 136_134_656),
    _qwen("qwen2.5-1.5b-instruct", "Qwen2.5-1.5B-Instruct", 1_543_714_304, 233_373_696),
    _qwen("qwen2.5-3b-instruct", "Qwen2.5-3B-Instruct", 3_085_938_688, 311_164_928),
    _qwen("qwen2.5-7b-instruct", "Qwen2.5-7B-Instruct", 7_615_616_512, 1_089_994_752),
    _qwen("qwen2.5-14b-instruct", "Qwen2.5-14B-Instruct", 14_770_033_664, 1_557_135_360),
    _qwen("qwen3-0.6b", "Qwen3-0.6B", 596_049_920, 155_582_464),
    _qwen("qwen3-1.7b", "Qwen3-1.7B", 1_720_574_976, 311_164_928),
    _qwen("qwen3-4b", "Qwen3-4B", 4_022_468_096, 388_956_160),
    _qwen("qwen3-8b", "Qwen3-8B", 8_190_735_360, 1_244_659_712),
    _qwen("qwen3-14b", "Qwen3-14B", 14_768_307_200, 1_555_824_640),
    Alias("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct", "llama", 134_515_008, 28_311_552, 8_192),
    Alias("smollm2-360m", "HuggingFaceTB/SmolLM2-360M-Instruct", "llama", 361_821_120, 47_185_920, 8_192),
    Alias("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct", "llama", 1_711_376_384, 100_663_296, 8_192),
    Alias("smollm3-3b", "HuggingFaceTB/SmolLM3-3B", "smollm3", 3_075_098_624, 262_668_288, 65_536),
    Alias("tinyllama", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama", 1_100_048_384, 131_072_000, 2_048),
    _base("opt-125m", "facebook/opt-125m", "opt", 125_239_296, 38_608_896, 2_048),
    _base("opt-1.3b", "facebook/opt-1.3b", "opt", 1_315_758_080, 102_957_056, 2_048),
    _base("opt-6.7b", "facebook/opt-6.7b", "opt", 6_658_473_984, 205_914_112, 2_048),
    _base("pythia-160m", "EleutherAI/pythia-160m", "gpt_neox", 162_322_944, 77_266_944, 2_048),
    _base("pythia-410m", "EleutherAI/pythia-410m", "gpt_neox", 405_334_016, 103_022_592, 2_048),
    _base("pythia-1.4b", "EleutherAI/pythia-1.4b", "gpt_neox", 1_414_647_808, 206_045_184, 2_048),
    _base("pythia-6.9b", "EleutherAI/pythia-6.9b", "gpt_neox", 6_857_302_016, 413_138_944, 2_048),
    _base("gpt-neox-20b", "EleutherAI/gpt-neox-20b", "gpt_neox", 20_554_567_680, 619_708_416, 2_048),
    Alias("phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", "phi3", 3_821_079_552, 197_001_216, 4_096),
    Alias("phi-3.5-mini", "microsoft/Phi-3.5-mini-instruct", "phi3", 3_821_079_552, 197_001_216, 131_072),
    Alias("phi-4-mini", "microsoft/Phi-4-mini-instruct", "phi3", 3_836_021_760, 614_596_608, 131_072),
    Alias("phi-4", "microsoft/phi-4", "phi3", 14_659_507_200, 1_027_604_480, 16_384),
    Alias("gemma-2-2b", "google/gemma-2-2b-it", "gemma2", 2_614_341_888, 589_824_000, 8_192, True),
    Alias("gemma-2-9b", "google/gemma-2-9b-it", "gemma2", 9_241_705_984, 917_504_000, 8_192, True),
    Alias("gemma-3-270m", "google/gemma-3-270m-it", "gemma3_text", 268_098_176, 167_772_160, 32_768, True),
    Alias("gemma-3-1b", "google/gemma-3-1b-it", "gemma3_text", 999_885_952, 301_989_888, 32_768, True),
    Alias("olmo-2-7b", "allenai/OLMo-2-1124-7B-Instruct", "olmo2", 7_298_617_344, 822_083_584, 4_096),
    _base("gpt2", "openai-community/gpt2", "gpt2", 124_439_808, 38_597_376, 1_024),
)

ALIASES: dict[str, Alias] = {alias.name: alias for alias in _TABLE}
