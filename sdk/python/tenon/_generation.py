# SPDX-License-Identifier: Apache-2.0
"""Answers of language models: in the making, and whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import _tenon


@dataclass(frozen=True)
class Piece:
    """A token of an answer, and the text that it completes: whole characters, possibly none. token: -1 for none."""

    text: str
    token: int
    logprob: float


@dataclass(frozen=True)
class Answer:
    """A whole answer. str(answer) is its text.

    finish: "end_token", "stop_string", "complete" (the schema or expression allows nothing more), "max_tokens",
    "context_full" or "cancelled". stop: which of the stop strings was met. cached_tokens: of the prompt, which the engine
    had read before. logprobs: one for each token, if they were asked for.
    """

    text: str
    tokens: list[int]
    finish: str
    stop: int | None
    prompt_tokens: int
    cached_tokens: int
    logprobs: list[float] | None

    def __str__(self) -> str:
        return self.text


class Generation(Iterator[str]):
    """An answer in the making: an iterator of text, in pieces of whole characters.

    Each step of it makes tokens until some text is complete; the first one reads the prompt. Ctrl-C and other signals are
    handled between tokens, and while a prompt is read.
    """

    def __init__(self, native: _tenon._LlmGeneration, logprobs: bool) -> None:
        self._native = native
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[float] | None = [] if logprobs else None
        self._finish = ""
        self._stop: int | None = None
        self._prompt_tokens = self._cached_tokens = 0

    def pieces(self) -> Iterator[Piece]:
        """The rest of the answer, token by token."""
        while not self._finish:
            text, token, logprob, finish, stop, self._prompt_tokens, self._cached_tokens = self._native.next()
            self._text.append(text)
            if token >= 0:
                self._tokens.append(token)
                if self._logprobs is not None:
                    self._logprobs.append(logprob)
            self._finish, self._stop = finish, stop
            yield Piece(text, token, logprob)

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
        )


for _class in (Answer, Generation, Piece):
    _class.__module__ = "tenon.llm"
