"""Chat templates as found in the wild, each with a tokenizer that spells its marks."""

from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
QWEN3 = (  # as in Qwen3: thinking is taken out of answers before the last question
    "{%- set ns = namespace(last=messages|length - 1) %}{%- for m in messages %}"
    "{%- if m.role == 'assistant' and loop.index0 < ns.last and '</think>' in m.content %}"
    "{{- '<|im_start|>assistant\\n' + m.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
THINKS = """{%- for m in messages %}<|im_start|>{{ m.role + '\n' }}
{%- set parts = m.content.split('</think>') %}{%- set late = loop.last and not add_generation_prompt %}
{%- if m.role == 'assistant' and late and (m.reasoning_content or parts|length > 1) %}<think>
{{ m.reasoning_content or parts[0].split('<think>')[-1].strip() }}
</think>

{{ parts[-1].strip() }}{% else %}
{{- parts[-1].strip() if m.role == 'assistant' else m.content }}{% endif %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""
"""Qwen3's form: thoughts of earlier answers are left out; a switch closes the thought before it begins."""
OPENS = THINKS.replace(
    "defined and not enable_thinking %}<think>", "undefined or enable_thinking %}<think>"
).replace("<think>\n\n</think>\n\n{% endif %}{% endif %}", "<think>\n{% endif %}{% endif %}")
"""DeepSeek's form: the prompt ends with the first mark of the thought."""
KEEPS = THINKS.replace("{%- set late = loop.last and not add_generation_prompt %}", "{%- set late = true %}")
"""The form of some models of 2026: thoughts stay where they are."""
CHANNELS = """<|start|>system<|message|>Effort: {{ reasoning_effort or 'medium' }}<|end|>
{%- for m in messages %}{%- if m.role != 'assistant' %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>
{%- else %}{%- if '<|channel|>' in m.content %}{{ raise_exception('no channels here') }}{% endif %}
{%- if m.thinking and loop.last and not add_generation_prompt -%}
<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif -%}
<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""
"""The form of gpt-oss: thoughts stand in a channel, whose marks are special tokens."""
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3 = (
    "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] +"
    " '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"
)


def byte_tokenizer(
    template: str | None, bos: str | None, eos: str, marks: Sequence[str] = (), turns: Sequence[str] = ()
) -> Any:
    """One token a byte; `marks` are special tokens, `turns` are added tokens that are not special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t in (bos, eos, *marks) if t])
    tokenizer.add_tokens(list(turns))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, additional_special_tokens=list(marks)
    )
    wrapped.chat_template = template
    return wrapped


def llama2_tokenizer() -> Any:
    """One token a character, and a space before every start of text, as in Llama 2."""
    characters = ["<unk>", "<s>", "</s>", "▁", *map(chr, range(33, 127)), "\n"]
    vocab = {c: n for n, c in enumerate(characters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    wrapped.chat_template = LLAMA2
    return wrapped


FAMILIES: dict[str, Callable[[], Any]] = {
    "chatml": lambda: byte_tokenizer(CHATML, None, "<|im_end|>", ["<|im_start|>"]),
    "chatml, marks not special": lambda: byte_tokenizer(
        CHATML, None, "<|endoftext|>", turns=["<|im_start|>", "<|im_end|>"]
    ),
    "qwen3": lambda: byte_tokenizer(QWEN3, None, "<|im_end|>", ["<|im_start|>"]),
    "llama2": llama2_tokenizer,
    "llama3": lambda: byte_tokenizer(
        LLAMA3, "<|begin_of_text|>", "<|eot_id|>", ["<|start_header_id|>", "<|end_header_id|>"]
    ),
    "gemma": lambda: byte_tokenizer(GEMMA, "<bos>", "<end_of_turn>", ["<start_of_turn>"]),
}
MARKS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|eot_id|>", "<|start_header_id|>", "<end_of_turn>"]


def whole(tokenizer: Any, *texts: str, system: str | None = None) -> list[int]:
    """The ids of a whole conversation, as transformers makes them."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(rendered, add_special_tokens=False)["input_ids"])
