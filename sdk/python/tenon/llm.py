# SPDX-License-Identifier: Apache-2.0
"""Language models: GGUF files and Hugging Face folders, with their tokenizers and chat templates.

    engine = tenon.llm.Engine("Llama-3.2-1B-Instruct.gguf")
    for text in engine.generate([{"role": "user", "content": "Why is the sky blue?"}], max_tokens=200):
        print(text, end="", flush=True)

Options have the same names in C++ (llm.hpp).
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Union, cast

import numpy as np

from . import _tenon
from ._dtypes import DType
from ._errors import InvalidArgument
from ._generation import Answer, AsyncGeneration, Generation, Piece
from ._options import text as text_of
from ._options import whole_number
from ._runtime import default_runtime
from ._tenon import Runtime, Tensor

Message = Mapping[str, Any]
Prompt = Union[str, Sequence[int], Sequence[Message]]
PathLike = Union[str, "os.PathLike[str]"]

_LARGEST_TOKEN = (1 << 31) - 1
_LARGEST_SEED = (1 << 64) - 1


class Engine:
    """A language model on a device, with its tokenizer and chat template.

    path: a GGUF file, or a folder of Hugging Face with config.json, safetensors files and tokenizer.json.
    device: "auto", "cpu", "cuda:0".
    context: most tokens of a sequence, prompt and answer together; None: 4096, or the model's own limit if it is less.
    slots: sequences that are kept at the same time.
    compute: dtype of activations: "f32", "f16" or "bf16"; None: f32 on the cpu, elsewhere that of the weights.
    cache: dtype of the cache of keys and values: "f32", "f16", "bf16", or "q8_0", which takes about half the memory of
    f16, on the cpu, and on cuda beside activations of f16 or bf16; None: that of activations, but on the cpu f16 unless
    the weights are f32.
    cache_tokens: tokens that the cache has room for, of all slots together, from the context to slots * context; None:
    slots * context. Fewer need less memory; they are possible on the cpu and on cuda, but not for recurrent models. Each sequence takes whole blocks of 96 tokens. A call that finds no room raises OutOfMemory.
    products: the precision of products with weights in blocks. "f32": as precise as in f32. "int8": activations are
    rounded to blocks of 8-bit integers. "compute": weights may be rounded to the dtype of activations. "auto": "int8" on
    the cpu, elsewhere "compute", or "f32" with batch_invariant=True.
    batch_invariant: whether answers have the same bits whichever other sequences run at the same time, where the device can:
    GPUs of sm_90. None: yes for weights of f16 or bf16, if every op of the model can be so: no experts, recurrent layers,
    alibi, latent attention, or heads of more than 128 elements. Except on the cpu, True also makes products "auto" mean
    "f32". On the cpu they have the same bits anyway, if activations are f32, without experts and recurrent layers.

    A slot keeps what it has read: the next prompt is read from where it differs. Calls of several threads wait for each
    other. They release the GIL. For asyncio: generate_async(), complete_async() and embed_async(), which run the model in a
    thread of the engine.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        device: str = "auto",
        context: int | None = None,
        slots: int = 1,
        compute: str | DType | None = None,
        cache: str | DType | None = None,
        products: str = "auto",
        cache_tokens: int | None = None,
        batch_invariant: bool | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self._path, self._device = os.fspath(path), text_of(device, "device")
        if not isinstance(batch_invariant, (bool, type(None))):
            raise InvalidArgument(f"batch_invariant: expected True, False or None, got {batch_invariant!r}")
        self._native = _tenon._LlmEngine(
            runtime or default_runtime(),
            self._path,
            self._device,
            0 if context is None else _at_least_one(context, "context"),
            _at_least_one(slots, "slots"),
            "" if compute is None else text_of(str(compute), "compute"),
            "" if cache is None else text_of(str(cache), "cache"),
            text_of(products, "products"),
            0 if cache_tokens is None else _at_least_one(cache_tokens, "cache_tokens"),
            batch_invariant,
        )
        self._facts = self._native.facts()
        self._executor: ThreadPoolExecutor | None = None

    # ---- Facts

    @property
    def architecture(self) -> str:
        """The model_type of config.json: "llama"."""
        return str(self._facts["architecture"])

    @property
    def vocab_size(self) -> int:
        """The number of logits. Tokens are below it."""
        return int(self._facts["vocab"])

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self._facts["layers"])

    @property
    def dim(self) -> int:
        """The width of the model."""
        return int(self._facts["dim"])

    @property
    def context(self) -> int:
        """Most tokens of a sequence, prompt and answer together."""
        return int(self._facts["context"])

    @property
    def model_context(self) -> int:
        """The same, as the model was made for."""
        return int(self._facts["model_context"])

    @property
    def slots(self) -> int:
        """The number of sequences that are kept at the same time."""
        return int(self._facts["slots"])

    @property
    def cache_tokens(self) -> int:
        """The number of tokens that the cache has room for, of all slots together."""
        return int(self._facts["cache_tokens"])

    @property
    def device(self) -> str:
        """The device that was asked for."""
        return self._device

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end an answer."""
        return tuple(self._facts["end_tokens"])

    @property
    def bos_token(self) -> int | None:
        """The token that begins a text, if the tokenizer has one."""
        token: int | None = self._facts["bos_token"]
        return token

    @property
    def has_tokenizer(self) -> bool:
        """False: prompts are tokens, and answers have no text."""
        return bool(self._facts["has_tokenizer"])

    @property
    def has_chat_template(self) -> bool:
        """True: prompts may be messages."""
        return bool(self._facts["has_chat_template"])

    @property
    def pooling(self) -> str | None:
        """What embed() does by default: "mean", "cls" or "last". None: the model's files ask for something else."""
        name: str | None = self._facts["pooling"]
        return name

    @property
    def recurrent(self) -> bool:
        """True: a slot cannot forget its last tokens, only all of them."""
        return bool(self._facts["recurrent"])

    # ---- Text and tokens

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The tokens of a text. add_special: with what the model expects around it, such as <s>. parse_special: special
        tokens that the text spells out are tokens; without it they are text."""
        return self._native.tokenize(text_of(text, "text"), bool(add_special), bool(parse_special))

    def detokenize(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of tokens. skip_special: without that of special ones."""
        return self._native.detokenize(_tokens(tokens, "tokens"), bool(skip_special))

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text that the model's chat template makes of a conversation: [{"role": "user", "content": "Hi"}].

        Its tokens: tokenize(text, add_special=False). tools: JSON schemas of functions. variables: further variables of
        the template, such as enable_thinking=False.
        """
        return self._native.apply_chat_template(
            _json(list(messages), "messages"),
            "" if tools is None else _json(list(tools), "tools"),
            _json(variables, "variables") if variables else "",
            bool(add_generation_prompt),
        )

    # ---- Generating

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        penalty_window: int = 0,
        seed: int = 0,
        logit_bias: Mapping[int, float] | None = None,
        stop: str | Sequence[str] = (),
        json_schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        ignore_end: bool = False,
        logprobs: bool = False,
        top_logprobs: int = 0,
        tools: Sequence[Mapping[str, Any]] | None = None,
        slot: int = 0,
    ) -> Generation:
        """Continues a prompt. Returns an iterator of text: for text in engine.generate("Once"): ...

        prompt: a text; tokens; or messages, which the chat template makes a text of, with `tools`.
        max_tokens: None: as many as the context has room for. temperature: 0 takes the most likely token each time.
        top_k, top_p, min_p: which of the likely tokens may be drawn. seed: the same seed gives the same tokens.
        repetition_penalty, presence_penalty, frequency_penalty: make tokens that occurred in the latest `penalty_window`
        tokens (0: in all of them) less likely.
        logit_bias: added to logits, by token; -inf excludes one. stop: texts that end the answer and are no part of it.
        json_schema: the answer is JSON of this schema, a mapping or its JSON text; {} allows any JSON.
        regex: the answer matches this expression as a whole.
        ignore_end: go on after an end token; not with json_schema or regex. logprobs: with log probabilities.
        top_logprobs: with those of so many of the most likely tokens in each place.
        slot: a slot has one generation at a time; an older one raises InvalidArgument from then on.
        """
        stops = [stop] if isinstance(stop, str) else [text_of(s, "stop") for s in stop]
        if json_schema == "":
            raise InvalidArgument("json_schema: expected JSON, got an empty str")
        if regex == "":
            raise InvalidArgument("regex: expected an expression, got an empty str")
        schema = "" if json_schema is None else json_schema
        if not isinstance(schema, str):
            schema = _json(schema, "json_schema")
        biases = [(whole_number(t, "logit_bias", _LARGEST_TOKEN), float(b)) for t, b in (logit_bias or {}).items()]
        native = self._native.generate(
            self._prompt(prompt, tools),
            slot=whole_number(slot, "slot"),
            max_tokens=0 if max_tokens is None else _at_least_one(max_tokens, "max_tokens"),
            temperature=_number(temperature, "temperature"),
            top_k=whole_number(top_k, "top_k"),
            top_p=_positive(top_p, "top_p"),
            min_p=_number(min_p, "min_p"),
            repetition_penalty=_positive(repetition_penalty, "repetition_penalty"),
            presence_penalty=_number(presence_penalty, "presence_penalty"),
            frequency_penalty=_number(frequency_penalty, "frequency_penalty"),
            penalty_window=whole_number(penalty_window, "penalty_window"),
            seed=whole_number(seed, "seed", _LARGEST_SEED),
            logit_bias=biases,
            stop=stops,
            json_schema=schema,
            regex="" if regex is None else text_of(regex, "regex"),
            ignore_end=bool(ignore_end),
            logprobs=bool(logprobs),
            top_logprobs=whole_number(top_logprobs, "top_logprobs", self.vocab_size),
        )
        return Generation(native, bool(logprobs) or top_logprobs > 0, top_logprobs > 0)

    def complete(self, prompt: Prompt, **options: Any) -> Answer:
        """The whole answer to a prompt. options: those of generate()."""
        return self.generate(prompt, **options).answer()

    def generate_async(self, prompt: Prompt, **options: Any) -> AsyncGeneration:
        """Continues a prompt without blocking the event loop: async for text in engine.generate_async("Once"): ...

        options: those of generate(). Answers in several slots go on by turns. A task that is cancelled ends its answer.
        """
        if not isinstance(prompt, str):
            prompt = cast("Prompt", list(prompt))  # as it is now: the prompt is read later
        return AsyncGeneration(self._thread(), functools.partial(self.generate, prompt, **options))

    async def complete_async(self, prompt: Prompt, **options: Any) -> Answer:
        """The whole answer to a prompt, without blocking the event loop. options: those of generate()."""
        return await self.generate_async(prompt, **options).answer()

    def _thread(self) -> ThreadPoolExecutor:
        """One thread, as one call at a time can use the model: those that wait have their turns in order."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="tenon.llm")
        return self._executor

    # ---- Embeddings

    def embed(
        self, texts: str | Sequence[Any], *, pooling: str = "auto", normalize: bool = True, slot: int = 0
    ) -> np.ndarray[Any, Any]:
        """Texts as vectors: a numpy array f32[texts, dim], or f32[dim] for one text.

        texts: a str, or tokens, for one text; a list of str, or of lists of tokens, for several. They are the hidden states
        behind the model's last norm. pooling: which of them: "mean" of all tokens, "cls" (the first token), "last", or "auto":
        as the model's files say, else "mean". normalize: to length 1. Clears the slot.
        """
        many = not isinstance(texts, str) and not (len(texts) > 0 and isinstance(texts[0], (int, np.integer)))
        listed = list(texts) if many else [texts]
        tokens = [self.tokenize(t) if isinstance(t, str) else _tokens(t, "texts") for t in listed]
        made = self._native.embed(tokens, text_of(pooling, "pooling"), bool(normalize), whole_number(slot, "slot")).numpy()
        return cast("np.ndarray[Any, Any]", made if many else made[0])

    async def embed_async(self, texts: str | Sequence[Any], **options: Any) -> np.ndarray[Any, Any]:
        """As embed(), without blocking the event loop."""
        call = functools.partial(self.embed, texts, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread(), call)

    def cancel(self) -> None:
        """Ends all generations of the engine, each at its next token, and calls of other threads. From any thread."""
        self._native.cancel()

    # ---- Several sequences

    def logits(self, tokens: Iterable[int]) -> Tensor:
        """The logits behind each token of a sequence: f32[tokens, vocab_size]. Uses and clears slot 0."""
        return self._native.logits(_tokens(tokens, "tokens"))

    def step(self, parts: Mapping[int, Iterable[int]], *, logits: bool = False) -> tuple[list[int], Tensor | None]:
        """Appends tokens to the sequences of slots: {slot: tokens}. Slots with one token are read together.

        Returns the most likely next token of each, and f32[slots, vocab_size] if `logits` is true.
        """
        given = [(whole_number(slot, "slot"), _tokens(tokens, "tokens")) for slot, tokens in parts.items()]
        return self._native.step(given, bool(logits))

    def length(self, slot: int = 0) -> int:
        """The number of tokens that a slot has read."""
        return self._native.length(whole_number(slot, "slot"))

    def truncate(self, length: int, *, slot: int = 0) -> int:
        """Forgets what stands behind the first `length` tokens of a slot. Returns what is left: 0 of a recurrent model."""
        return self._native.truncate(whole_number(slot, "slot"), whole_number(length, "length"))

    def clear(self, slot: int = 0) -> None:
        """Forgets all that a slot has read."""
        self.truncate(0, slot=slot)

    def __repr__(self) -> str:
        return f"<tenon.llm.Engine on {self._device}: {self.architecture}, {self.layers} layers, {self._path}>"

    def _prompt(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
        if isinstance(prompt, Mapping) or not hasattr(prompt, "__getitem__"):
            raise InvalidArgument(f"prompt: expected a text, tokens or messages, got {type(prompt).__name__}")
        messages = not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], Mapping)
        if tools is not None and not messages:
            raise InvalidArgument("tools: they are for a prompt of messages")
        if isinstance(prompt, str):
            return self.tokenize(prompt)
        if messages:
            text = self.apply_chat_template(cast("Sequence[Message]", prompt), tools=tools)
            return self.tokenize(text, add_special=False)
        return _tokens(cast("Sequence[int]", prompt), "prompt")


def _tokens(tokens: Iterable[Any], what: str) -> list[int]:
    if isinstance(tokens, (str, bytes)):
        raise InvalidArgument(f"{what}: expected token ids, got {tokens!r}")
    return [whole_number(t, what, _LARGEST_TOKEN) for t in tokens]


def _at_least_one(value: Any, what: str) -> int:
    """Zero means "the default" to the library."""
    number = whole_number(value, what)
    if number == 0:
        raise InvalidArgument(f"{what}=0; expected 1 or more")
    return number


def _number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{what}: expected a number, got {value!r}") from None


def _positive(value: Any, what: str) -> float:
    """Zero means "unset" to the library."""
    number = _number(value, what)
    if number == 0:
        raise InvalidArgument(f"{what}=0; expected more than 0")
    return number


def _json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise InvalidArgument(f"{what}: expected what JSON has: {e}") from None


__all__ = ["Answer", "AsyncGeneration", "Engine", "Generation", "Piece"]
