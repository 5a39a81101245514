# SPDX-License-Identifier: Apache-2.0
"""Answers of language models: in the making, and whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

from . import _tenon


@dataclass(frozen=True)
class Piece:
    """A token of an answer, and the text that it completes: whole characters, possibly none. token: -1 for none.

    top_logprobs: the most likely tokens in this place with their log probabilities, in descending order, as many as were
    asked for.
    """

    text: str
    token: int
    logprob: float
    top_logprobs: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """A whole answer. str(answer) is its text.

    finish: "end_token", "stop_string", "complete" (the schema or expression allows nothing more), "max_tokens",
    "context_full" or "cancelled". stop: which of the stop strings was met. cached_tokens: of the prompt, which the engine
    had read before. logprobs: one for each token, if they were asked for. top_logprobs: as that of Piece, for each token.
    """

    text: str
    tokens: list[int]
    finish: str
    stop: int | None
    prompt_tokens: int
    cached_tokens: int
    logprobs: list[float] | None
    top_logprobs: list[list[tuple[int, float]]] | None = None

    def __str__(self) -> str:
        return self.text


class Generation(Iterator[str]):
    """An answer in the making: an iterator of text, in pieces of whole characters.

    Each step of it makes tokens until some text is complete; the first one reads the prompt. Ctrl-C and other signals are
    handled between tokens, and while a prompt is read.
    """

    def __init__(self, native: _tenon._LlmGeneration, logprobs: bool, top_logprobs: bool = False) -> None:
        self._native = native
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[float] | None = [] if logprobs else None
        self._top_logprobs: list[list[tuple[int, float]]] | None = [] if top_logprobs else None
        self._finish = ""
        self._stop: int | None = None
        self._prompt_tokens = self._cached_tokens = 0

    def pieces(self) -> Iterator[Piece]:
        """The rest of the answer, token by token."""
        while not self._finish:
            yield self._next()

    def _next(self) -> Piece:
        text, token, logprob, finish, stop, self._prompt_tokens, self._cached_tokens, top = self._native.next()
        self._text.append(text)
        if token >= 0:
            self._tokens.append(token)
            if self._logprobs is not None:
                self._logprobs.append(logprob)
            if self._top_logprobs is not None:
                self._top_logprobs.append(top)
        self._finish, self._stop = finish, stop
        return Piece(text, token, logprob, top)

    def cancel(self) -> None:
        """Ends this answer at its next token, and no other one. From any thread."""
        self._native.cancel()

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        for piece in self.pieces():
            if piece.text:
                return piece.text
        raise StopIteration

    @property
    def finish(self) -> str | None:
        """Why the answer has ended, as in Answer; None while it goes on."""
        return self._finish or None

    @property
    def tokens(self) -> list[int]:
        """The tokens so far."""
        return list(self._tokens)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def answer(self) -> Answer:
        """Makes the rest of the answer, and returns all of it."""
        for _ in self.pieces():
            pass
        return Answer(
            self.text,
            self.tokens,
            self._finish,
            self._stop,
            self._prompt_tokens,
            self._cached_tokens,
            None if self._logprobs is None else list(self._logprobs),
            None if self._top_logprobs is None else [list(top) for top in self._top_logprobs],
        )


class AsyncGeneration(AsyncIterator[str]):
    """An answer in the making for asyncio: an asynchronous iterator of text, in pieces of whole characters.

    The model runs in a thread of the engine, so that the event loop goes on. The prompt is read at the first step; what is
    wrong with it is raised there. If the task that waits for a step is cancelled, the answer ends, and the slot is free for
    another one. An answer that nobody iterates makes no tokens.
    """

    def __init__(self, executor: Executor, start: Callable[[], Generation]) -> None:
        self._executor, self._start = executor, start
        self._generation: Generation | None = None
        self._cancelled = False

    def _step(self) -> Piece | None:
        """In the thread of the engine. None behind the last piece."""
        if self._generation is None:
            if self._cancelled:
                return None
            self._generation = self._start()
            if self._cancelled:  # meanwhile
                self._generation.cancel()
        return None if self._generation.finish else self._generation._next()

    async def _piece(self) -> Piece | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._step)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def pieces(self) -> AsyncIterator[Piece]:
        """The rest of the answer, token by token."""
        while (piece := await self._piece()) is not None:
            yield piece

    def __aiter__(self) -> AsyncGeneration:
        return self

    async def __anext__(self) -> str:
        while (piece := await self._piece()) is not None:
            if piece.text:
                return piece.text
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Ends this answer at its next token, and no other one. From any thread."""
        self._cancelled = True
        if self._generation is not None:
            self._generation.cancel()

    @property
    def finish(self) -> str | None:
        """Why the answer has ended, as in Answer; None while it goes on."""
        if self._generation is None:
            return "cancelled" if self._cancelled else None
        return self._generation.finish

    @property
    def tokens(self) -> list[int]:
        """The tokens so far."""
        return [] if self._generation is None else self._generation.tokens

    @property
    def text(self) -> str:
        """The text so far."""
        return "" if self._generation is None else self._generation.text

    async def answer(self) -> Answer:
        """Makes the rest of the answer, and returns all of it."""
        while await self._piece() is not None:
            pass
        if self._generation is None:
            return Answer("", [], "cancelled", None, 0, 0, None)
        return self._generation.answer()


for _class in (Answer, AsyncGeneration, Generation, Piece):
    _class.__module__ = "tenon.llm"
