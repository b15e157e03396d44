"""Chat templates for models that have none of their own, by name. Standard library only.

How a model was tuned decides which one fits; for a model that was only trained on text any of them is a
guess. Wording as published: github.com/tatsu-lab/stanford_alpaca, github.com/lm-sys/FastChat,
github.com/meta-llama/llama, github.com/openai/openai-python (chatml.md).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class BaseTemplate:
    jinja: str
    marker: str
    """The beginning of a user's turn, or the end of an answer: where it comes up, the answer is over."""


_ALPACA = r"""
{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% else -%}
Below is an instruction that describes a task. Write a response that appropriately completes the request.
{%- endif %}
{%- for m in messages if m.role != 'system' %}
{{- '\n\n### Instruction:\n' if m.role == 'user' else '\n\n### Response:\n' }}{{ m.content }}
{%- endfor %}
{{- '\n\n### Response:\n' }}
"""

_VICUNA = r"""
{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% else -%}
A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed,
{{- ' ' }}and polite answers to the user's questions.
{%- endif %}{{ ' ' }}
{%- for m in messages if m.role != 'system' %}
{%- if m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}
{%- else %}{{ 'ASSISTANT: ' + m.content }}{{ eos_token }}{% endif %}
{%- endfor %}
{{- 'ASSISTANT:' }}
"""

_LLAMA_2 = r"""
{%- for m in messages if m.role != 'system' %}
{%- if m.role == 'assistant' %}{{ ' ' + m.content + ' ' }}{{ eos_token }}
{%- else %}{{ bos_token }}{{ '[INST] ' }}
{%- if loop.first and messages[0].role == 'system' %}
{{- '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' }}
{%- endif %}{{ m.content + ' [/INST]' }}{% endif %}
{%- endfor %}
"""

_CHATML = r"""
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' }}
"""

BASE_TEMPLATES: dict[str, BaseTemplate] = {
    "alpaca": BaseTemplate(_ALPACA.strip(), "### Instruction:"),
    "vicuna": BaseTemplate(_VICUNA.strip(), "USER:"),
    "llama-2": BaseTemplate(_LLAMA_2.strip(), "[INST]"),
    "chatml": BaseTemplate(_CHATML.strip(), "<|im_end|>"),
}
"""All end where the answer begins."""
