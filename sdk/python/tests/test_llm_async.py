# SPDX-License-Identifier: Apache-2.0
"""Language models: answers for asyncio, embeddings, likely tokens."""

import asyncio
import math
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
from test_llm import HI, Rig, tiny_model

import tenon
from tenon.llm import Engine

EIGHT = {"max_tokens": 8, "ignore_end": True}


class Likely(Rig):
    def test_top_logprobs_are_those_of_the_logits(self):
        e = self.engine
        tokens = e.tokenize("<s>hello")
        g = e.generate(tokens, top_logprobs=4, temperature=1.5, seed=2, **EIGHT)
        pieces = list(g.pieces())
        answer = g.answer()
        self.assertEqual(answer.top_logprobs, [p.top_logprobs for p in pieces])
        self.assertEqual(len(answer.logprobs), 8)
        for piece in pieces:
            row = e.logits(tokens).numpy()[-1].astype(np.float64)
            expected = row - np.log(np.exp(row).sum())
            order = np.argsort(-expected)[:4]
            self.assertEqual([t for t, _ in piece.top_logprobs], order.tolist())
            np.testing.assert_allclose([p for _, p in piece.top_logprobs], expected[order], atol=1e-3)
            self.assertAlmostEqual(piece.logprob, expected[piece.token], places=3)
            tokens.append(piece.token)
        plain = e.complete("x", logprobs=True, **EIGHT)
        self.assertIsNone(plain.top_logprobs)
        for wrong in (-1, 263, 1.5):
            with self.assertRaises(tenon.InvalidArgument):
                e.generate("x", top_logprobs=wrong)

    def test_one_answer_is_cancelled(self):
        a = self.engine.generate("a", **EIGHT)
        b = self.engine.generate("b", slot=1, **EIGHT)
        next(a), next(b)
        threading.Thread(target=a.cancel).start()
        self.assertIn(a.answer().finish, ("cancelled", "max_tokens"))
        self.assertEqual(b.answer().finish, "max_tokens")
        a = self.engine.generate("a", **EIGHT)
        a.cancel()
        self.assertEqual((a.answer().finish, a.tokens), ("cancelled", []))


class Embeddings(Rig):
    def test_forms(self):
        e = self.engine
        one = e.embed("Hello")
        self.assertEqual((one.shape, one.dtype), ((32,), np.float32))
        self.assertAlmostEqual(float(np.linalg.norm(one)), 1, places=5)
        many = e.embed(["Hello", "other " * 60, "a"])
        self.assertEqual(many.shape, (3, 32))
        np.testing.assert_array_equal(many[0], one)
        np.testing.assert_array_equal(e.embed(list(b"Hello")), one)
        np.testing.assert_array_equal(e.embed(np.frombuffer(b"Hello", np.uint8)), one)
        np.testing.assert_array_equal(e.embed([list(b"Hello"), "a"]), many[[0, 2]])
        self.assertEqual(e.embed([]).shape, (0, 32))
        self.assertEqual(e.length(0), 0)

    def test_pooling(self):
        e = self.engine
        self.assertEqual(e.pooling, "mean")
        text = list(range(65, 75))
        raw = {p: e.embed(text, pooling=p, normalize=False) for p in ("mean", "cls", "last")}
        ends = [e.embed(text[: n + 1], pooling="last", normalize=False) for n in range(10)]
        np.testing.assert_allclose(raw["mean"], np.mean(ends, axis=0), atol=1e-5)
        np.testing.assert_allclose(raw["cls"], ends[0], atol=1e-5)
        np.testing.assert_array_equal(raw["last"], ends[-1])
        np.testing.assert_allclose(e.embed(text), raw["mean"] / np.linalg.norm(raw["mean"]), atol=1e-6)

    def test_what_is_wrong_is_named(self):
        e = self.engine
        for texts, options, words in (
            (["a", [5, 300]], {}, "text 1: expected token ids from 0 to 261, got 300"),
            (["a", ""], {}, "text 1: expected 1 to 512 tokens"),
            ("", {}, "text 0: expected 1 to 512 tokens"),
            ([[65] * 513], {}, "at most 512"),
            ("a", {"pooling": "max"}, 'pooling=\'max\'; expected "auto"'),
            ("a", {"slot": 2}, "slot from 0 to 1, got 2"),
            ([None], {}, ""),
        ):
            with self.assertRaisesRegex((tenon.InvalidArgument, TypeError), words):
                e.embed(texts, **options)

    def test_ctrl_c(self):
        path = tiny_model.make(Path(self.folder.name) / "wide", hidden=128, layers=4, ffn=256)
        engine = Engine(path, device="cpu")
        engine.embed([[65] * 512])  # compiles
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            engine.embed([[65] * 512] * 5000)
            time.sleep(1)
        self.assertEqual(engine.embed("a").shape, (128,))


class Async(Rig):
    def test_text_comes_in_pieces(self):
        expected = self.engine.complete(HI, max_tokens=20, ignore_end=True)

        async def work():
            g = self.engine.generate_async(HI, max_tokens=20, ignore_end=True)
            self.assertIsNone(g.finish)
            pieces = [text async for text in g]
            self.assertEqual(("".join(pieces), g.text, g.tokens), (expected.text, expected.text, expected.tokens))
            self.assertTrue(all(pieces))
            self.assertEqual(g.finish, "max_tokens")
            self.assertEqual([text async for text in g], [])
            self.assertEqual((await g.answer()).tokens, expected.tokens)
            tokens = [p.token async for p in self.engine.generate_async(HI, max_tokens=20, ignore_end=True).pieces()]
            self.assertEqual(tokens, expected.tokens)
            self.assertEqual((await self.engine.complete_async(HI, max_tokens=20, ignore_end=True)).text, expected.text)
            np.testing.assert_array_equal(await self.engine.embed_async("Hello"), self.engine.embed("Hello"))

        asyncio.run(work())

    def test_several_at_once(self):
        prompts = [f"prompt {i}" for i in range(6)]
        engine = Engine(self.path, device="cpu", slots=6)
        alone = [self.engine.complete(p, max_tokens=30, ignore_end=True).tokens for p in prompts]

        async def work():
            order = []

            async def one(i):
                async for _ in (g := engine.generate_async(prompts[i], slot=i, max_tokens=30, ignore_end=True)).pieces():
                    order.append(i)
                return g.tokens

            made = await asyncio.gather(*(one(i) for i in range(6)))
            self.assertEqual(made, alone)
            # By turns: each has begun long before the first one ended.
            self.assertEqual(set(order[:60]), set(range(6)))

        asyncio.run(work())

    def test_the_event_loop_goes_on(self):
        path = tiny_model.make(Path(self.folder.name) / "slow", hidden=128, layers=4, ffn=256, context=4096)
        engine = Engine(path, device="cpu")
        engine.complete([65] * 640, max_tokens=1)  # compiles

        async def work():
            ticks, done = 0, False

            async def tick():
                nonlocal ticks
                while not done:
                    await asyncio.sleep(0.001)
                    ticks += 1

            task = asyncio.create_task(tick())
            start = time.perf_counter()
            await engine.complete_async([66] * 4000, max_tokens=1, ignore_end=True)
            took = time.perf_counter() - start
            done = True
            await task
            self.assertGreater(ticks, took / 0.001 / 20)

        asyncio.run(work())

    def test_a_cancelled_task_ends_its_answer(self):
        path = tiny_model.make(Path(self.folder.name) / "long", hidden=128, layers=4, ffn=256, context=4096)
        engine = Engine(path, device="cpu")
        engine.complete([65] * 640, max_tokens=1)
        expected = self.engine.complete("x", **EIGHT)

        async def work():
            # While its prompt is read.
            g = engine.generate_async([66] * 4000, ignore_end=True)
            task = asyncio.create_task(g.answer())
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await engine.embed_async("a")  # behind it
            self.assertEqual(g.tokens, [])
            self.assertEqual(g.finish, "cancelled")
            # Between tokens; others go on.
            g = self.engine.generate_async("y", ignore_end=True, slot=1)

            async def endless():
                async for _ in g:
                    pass

            task = asyncio.create_task(endless())
            await asyncio.sleep(0.01)
            other = asyncio.create_task(self.engine.complete_async("x", **EIGHT))
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual((await other).tokens, expected.tokens)
            count = len(g.tokens)
            await asyncio.sleep(0.02)
            self.assertLessEqual(len(g.tokens), count + 1)
            self.assertEqual(await asyncio.wait_for(g.answer(), 10), await g.answer())
            self.assertIn(g.finish, ("cancelled", "context_full"))
            # A time limit, as it is used.
            with self.assertRaises((asyncio.TimeoutError, TimeoutError)):
                await asyncio.wait_for(engine.complete_async([67] * 4000, ignore_end=True), 0.01)
            self.assertEqual((await engine.complete_async("x", **EIGHT)).finish, "max_tokens")

        asyncio.run(work())

    def test_cancelled_before_it_begins(self):
        async def work():
            g = self.engine.generate_async("x", **EIGHT)
            g.cancel()
            self.assertEqual(((await g.answer()).finish, g.finish), ("cancelled", "cancelled"))

        asyncio.run(work())

    def test_errors_are_raised_where_it_is_awaited(self):
        async def work():
            g = self.engine.generate_async("x", temperature=-1)
            with self.assertRaisesRegex(tenon.InvalidArgument, "temperature"):
                async for _ in g:
                    pass
            with self.assertRaisesRegex(tenon.InvalidArgument, "slot from 0 to 1"):
                await self.engine.complete_async("x", slot=7)
            with self.assertRaises(TypeError):
                await self.engine.complete_async("x", tokens=7)
            with self.assertRaisesRegex(tenon.InvalidArgument, "pooling"):
                await self.engine.embed_async("x", pooling="max")
            logit_bias = {257: math.inf}
            with self.assertRaises(tenon.Error):
                await self.engine.complete_async("x", logit_bias=logit_bias)

        asyncio.run(work())
