# SPDX-License-Identifier: Apache-2.0
"""Language models: loading, text and tokens, answers as they come, grammars, slots, signals, threads."""

import gc
import importlib.util
import math
import os
import signal
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np
from programs import EXAMPLES

import tenon
from tenon.llm import Engine

# By its path: other files beside it have names of Python's own modules.
_spec = importlib.util.spec_from_file_location("tiny_model", EXAMPLES.parent.parent / "tests" / "cli" / "tiny_model.py")
tiny_model = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_model)

HI = [{"role": "user", "content": "Hi"}]


class Rig(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = tiny_model.make(Path(cls.folder.name) / "tiny")
        cls.engine = Engine(cls.path, device="cpu", slots=2)

    @classmethod
    def tearDownClass(cls):
        del cls.engine
        cls.folder.cleanup()

    def setUp(self):
        self.engine.clear(0)
        self.engine.clear(1)


class Loading(Rig):
    def test_facts(self):
        e = self.engine
        self.assertEqual((e.architecture, e.vocab_size, e.layers, e.dim), ("llama", 262, 2, 32))
        self.assertEqual((e.context, e.model_context, e.slots, e.device), (512, 512, 2, "cpu"))
        self.assertEqual((e.end_tokens, e.bos_token), ((257,), 256))
        self.assertTrue(e.has_tokenizer and e.has_chat_template and not e.recurrent)
        self.assertIn("llama, 2 layers", repr(e))

    def test_load_gives_an_engine(self):
        e = tenon.load(self.path, device="cpu", context=64)
        self.assertIsInstance(e, Engine)
        self.assertEqual(e.context, 64)
        self.assertEqual(e.complete("x", max_tokens=5).tokens, self.engine.complete("x", max_tokens=5).tokens)
        with self.assertRaisesRegex(tenon.InvalidArgument, "no bind"):
            tenon.load(self.path, bind={"N": 1})

    def test_a_cache_in_half_precision(self):
        tokens = self.engine.tokenize("<s>hello")
        exact = self.engine.logits(tokens).numpy()
        half = Engine(self.path, device="cpu", cache=tenon.f16).logits(tokens).numpy()
        self.assertGreater(np.abs(half - exact).max(), 0)
        self.assertLess(np.abs(half - exact).max(), 0.01 * np.abs(exact).max())

    def test_a_cache_of_less_memory(self):
        e = Engine(self.path, device="cpu", slots=4, cache_tokens=600)
        self.assertTrue(600 <= e.cache_tokens < 696)
        self.assertEqual(e.complete("x", max_tokens=5).tokens, self.engine.complete("x", max_tokens=5).tokens)
        e.truncate(0)
        e.step({0: [65] * 500})
        with self.assertRaisesRegex(tenon.OutOfMemory, "a larger cache"):
            e.step({1: [66] * 500})
    def test_a_cache_of_8_bit_integers(self):
        path = tiny_model.make(Path(self.folder.name) / "wide", hidden=128, heads=4, ffn=64, deviation=0.1)
        tokens = self.engine.tokenize("<s>hello")
        exact = Engine(path, device="cpu").logits(tokens).numpy()
        got = Engine(path, device="cpu", cache="q8_0").logits(tokens).numpy()
        self.assertGreater(np.abs(got - exact).max(), 0)
        self.assertLess(np.square(got - exact).sum(), 1e-3 * np.square(exact).sum())
        with self.assertRaisesRegex(tenon.Unsupported, "head_dim that is a multiple of 32.* got 8"):
            Engine(self.path, device="cpu", cache="q8_0")

    def test_products(self):
        # Without weights in blocks they are all the same.
        expected = self.engine.complete("x", max_tokens=5).tokens
        for products in ("auto", "f32", "int8", "compute"):
            e = Engine(self.path, device="cpu", products=products)
            self.assertEqual(e.complete("x", max_tokens=5).tokens, expected, products)

    def test_batch_invariant(self):
        # On the cpu the option changes nothing.
        expected = self.engine.complete("x", max_tokens=5).tokens
        for answer in (None, True, False):
            e = Engine(self.path, device="cpu", batch_invariant=answer)
            self.assertEqual(e.complete("x", max_tokens=5).tokens, expected, answer)

    def test_what_is_wrong_is_named(self):
        for options, words in (
            ({"context": 9999}, "context of at most 512"),
            ({"context": 0}, "context=0; expected 1 or more"),
            ({"slots": 0}, "slots=0"),
            ({"cache_tokens": 0}, "cache_tokens=0"),
            ({"cache_tokens": 511}, "a cache of at least 512 tokens"),
            ({"compute": "i32"}, "compute='i32'"),
            ({"compute": "q8_0"}, "compute='q8_0'; expected f32, f16 or bf16"),
            ({"cache": "f64"}, "cache='f64'; expected f32, f16, bf16 or q8_0"),
            ({"products": "i4"}, "products='i4'; expected .* or \"compute\""),
            ({"device": 3}, "device: expected a str"),
            ({"batch_invariant": "no"}, "batch_invariant: expected True, False or None, got 'no'"),
        ):
            with self.assertRaisesRegex(tenon.InvalidArgument, words):
                Engine(self.path, **{"device": "cpu", **options})
        with self.assertRaisesRegex(tenon.Error, "missing"):
            Engine(self.path / "missing", device="cpu")

    def test_without_a_tokenizer(self):
        path = tiny_model.make(Path(self.folder.name) / "bare")
        (path / "tokenizer.json").unlink()
        e = Engine(path, device="cpu")
        self.assertFalse(e.has_tokenizer)
        with self.assertRaises(tenon.NotFound):
            e.generate("text")
        answer = e.complete([65, 66], max_tokens=4, ignore_end=True)
        self.assertEqual((answer.text, len(answer.tokens)), ("", 4))


class Text(Rig):
    def test_tokens_and_back(self):
        e = self.engine
        tokens = e.tokenize("é</s>")
        self.assertEqual((len(tokens), tokens[-1]), (3, 257))
        self.assertEqual(e.detokenize(tokens), "é</s>")
        self.assertEqual(e.detokenize(np.array(tokens), skip_special=True), "é")
        self.assertEqual(len(e.tokenize("</s>", parse_special=False)), 4)
        for wrong in ("abc", [1.5], [-1], [1 << 40], [None]):
            with self.assertRaises(tenon.InvalidArgument):
                e.detokenize(wrong)

    def test_chat_template(self):
        e = self.engine
        self.assertEqual(e.apply_chat_template(HI), "<s><|user|>Hi</s><|assistant|>")
        self.assertEqual(e.apply_chat_template(HI, add_generation_prompt=False), "<s><|user|>Hi</s>")
        self.assertIn('[{"name": "f"}]', e.apply_chat_template(HI, tools=[{"name": "f"}]))
        with self.assertRaisesRegex(tenon.InvalidArgument, "unknown role x"):
            e.apply_chat_template([{"role": "x", "content": ""}])
        with self.assertRaisesRegex(tenon.InvalidArgument, "messages: expected what JSON has"):
            e.apply_chat_template([{"role": "user", "content": object()}])


class Generating(Rig):
    def test_text_comes_in_pieces(self):
        g = self.engine.generate(HI, max_tokens=20, ignore_end=True)
        self.assertIsNone(g.finish)
        pieces = list(g)
        self.assertGreater(len(pieces), 5)
        self.assertTrue(all(pieces))
        self.assertEqual("".join(pieces), g.text)
        self.assertEqual((g.finish, len(g.tokens)), ("max_tokens", 20))
        self.assertEqual(list(g), [])
        self.assertEqual(self.engine.detokenize(g.tokens, skip_special=True), g.text)
        answer = self.engine.complete(HI, max_tokens=20, ignore_end=True)
        self.assertEqual((answer.tokens, str(answer)), (g.tokens, g.text))

    def test_the_most_likely_tokens_are_those_of_the_logits(self):
        tokens = self.engine.tokenize("<s>hello")
        made = self.engine.complete(tokens, max_tokens=6, ignore_end=True, logprobs=True)
        for token, logprob in zip(made.tokens, made.logprobs):
            logits = self.engine.logits(tokens).numpy()
            self.assertEqual(logits.shape, (len(tokens), 262))
            row = logits[-1].astype(np.float64)
            self.assertEqual(int(row.argmax()), token)
            self.assertAlmostEqual(float(row[token] - np.log(np.exp(row).sum())), logprob, places=3)
            tokens.append(token)

    def test_sampling(self):
        def run(**options):
            return self.engine.complete("x", max_tokens=8, ignore_end=True, **options).tokens

        self.assertEqual(run(temperature=1.5, seed=3), run(temperature=1.5, seed=3))
        self.assertNotEqual(run(temperature=1.5, seed=3), run(temperature=1.5, seed=4))
        self.assertEqual(run(temperature=1.5, top_k=1), run())
        self.assertEqual(run(logit_bias={65: 1e6}), [65] * 8)
        self.assertNotIn(run()[0], run(logit_bias={run()[0]: -math.inf}))
        self.assertEqual(len(set(run(presence_penalty=1e6))), 8)
        for wrong in ({"temperature": -1}, {"top_p": 2.0}, {"top_p": 0}, {"seed": -1}, {"temperature": "hot"}, {"stop": [3]}):
            with self.assertRaises(tenon.InvalidArgument):
                run(**wrong)
        with self.assertRaisesRegex(tenon.InvalidArgument, "max_tokens=0; expected 1 or more"):
            self.engine.generate("x", max_tokens=0)

    def test_how_answers_end(self):
        answer = self.engine.complete("x", logit_bias={65: 1e6}, stop=["zz", "AAA"])
        self.assertEqual((answer.text, answer.finish, answer.stop), ("", "stop_string", 1))
        answer = self.engine.complete("x", logit_bias={257: 1e6})
        self.assertEqual((answer.tokens, answer.finish, answer.stop), ([257], "end_token", None))
        small = Engine(self.path, device="cpu", context=8)
        self.assertEqual(small.complete([65] * 5, ignore_end=True).finish, "context_full")
        with self.assertRaisesRegex(tenon.InvalidArgument, "prompt of 1 to 8 tokens"):
            small.generate([65] * 9)
        with self.assertRaisesRegex(tenon.InvalidArgument, "tools"):
            self.engine.generate("x", tools=[])
        for wrong, kind in ((None, "NoneType"), (HI[0], "dict"), (7, "int")):
            with self.assertRaisesRegex(tenon.InvalidArgument, f"prompt: expected a text, tokens or messages, got {kind}"):
                self.engine.generate(wrong)

    def test_grammars(self):
        options = {"temperature": 2.0, "seed": 5}
        self.assertRegex(self.engine.complete("x", regex="[a-c]{5}", **options).text, "^[a-c]{5}$")
        schema = {"enum": ["yes", "no"]}
        self.assertIn(self.engine.complete("x", json_schema=schema, **options).text, ('"yes"', '"no"'))
        with self.assertRaisesRegex(tenon.InvalidArgument, "got both"):
            self.engine.generate("x", json_schema=schema, regex="a")
        with self.assertRaisesRegex(tenon.InvalidArgument, "regex: expected an expression"):
            self.engine.generate("x", regex="")
        with self.assertRaisesRegex(tenon.InvalidArgument, "ignore_end or regex"):
            self.engine.generate("x", regex="a", ignore_end=True)

    def test_schemas_that_are_empty_or_bools(self):
        # The letters of null, in any order: the grammar puts them in order.
        null = {"logit_bias": {letter: 1e6 for letter in b"nul"}, "max_tokens": 9}
        for schema in ({}, "{}", True, "true"):
            answer = self.engine.complete("x", json_schema=schema, **null)
            self.assertEqual((answer.text, answer.finish), ("null", "complete"), schema)
        for schema in (False, "false"):
            with self.assertRaisesRegex(tenon.InvalidArgument, "grammar: no text follows it"):
                self.engine.complete("x", json_schema=schema, **null)
        with self.assertRaisesRegex(tenon.InvalidArgument, "json_schema: expected JSON, got an empty str"):
            self.engine.generate("x", json_schema="")

    def test_what_was_read_is_not_read_again(self):
        first = self.engine.complete("once upon a time", max_tokens=4, ignore_end=True)
        self.assertEqual(first.cached_tokens, 0)
        again = self.engine.complete("once upon a day", max_tokens=4, ignore_end=True)
        self.assertEqual((again.prompt_tokens, again.cached_tokens), (15, 12))

    def test_a_slot_has_one_generation(self):
        old = self.engine.generate("a", max_tokens=50, ignore_end=True)
        next(old)
        other = self.engine.generate("b", max_tokens=50, ignore_end=True, slot=1)
        next(other)
        next(old)  # they go on by turns
        self.engine.generate("c")
        with self.assertRaisesRegex(tenon.InvalidArgument, "slot 0 was changed"):
            list(old)
        list(other)
        self.assertEqual(other.finish, "max_tokens")

    def test_a_generation_keeps_the_model(self):
        engine = Engine(self.path, device="cpu")
        expected = engine.complete("x", max_tokens=4, ignore_end=True).text
        g = engine.generate("x", max_tokens=4, ignore_end=True)
        del engine
        gc.collect()
        self.assertEqual("".join(g), expected)


class Scheduling(Rig):
    def test_step(self):
        e = self.engine
        expected = e.logits([65, 66, 67]).numpy()[-1]
        tokens, logits = e.step({1: [65, 66, 67], 0: [70]}, logits=True)
        self.assertEqual((e.length(1), e.length(0), logits.shape), (3, 1, (2, 262)))
        np.testing.assert_allclose(logits.numpy()[0], expected, atol=1e-3)
        self.assertEqual(tokens[0], int(expected.argmax()))
        self.assertEqual(e.truncate(2, slot=1), 2)
        again, none = e.step({1: [67], 0: [71]})
        self.assertEqual((again[0], none, e.length(0)), (tokens[0], None, 2))
        with self.assertRaises(tenon.InvalidArgument):
            e.step({7: [65]})
        with self.assertRaises(tenon.InvalidArgument):
            e.truncate(99)
        with self.assertRaisesRegex(tenon.InvalidArgument, "logits: expected at most 512 tokens, the context, got 513"):
            e.logits([65] * 513)


class Process(Rig):
    def test_ctrl_c_ends_a_generation(self):
        engine = Engine(self.path, device="cpu")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            for _ in range(10_000):
                for _ in engine.generate("x", ignore_end=True):
                    pass
        self.assertEqual(engine.complete("x", max_tokens=3, ignore_end=True).finish, "max_tokens")

    def test_ctrl_c_while_a_prompt_is_read(self):
        # The handler runs inside of the call that reads the prompt, and what it raises comes out.
        path = tiny_model.make(Path(self.folder.name) / "larger", hidden=128, layers=4, ffn=256, context=4096)
        engine = Engine(path, device="cpu")
        engine.complete([65] * 640, max_tokens=1)  # compiles
        engine.clear()
        g = engine.generate([65] * 4000, max_tokens=1, ignore_end=True)
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            g.answer()
            time.sleep(1)  # the prompt was read too fast
        self.assertLess(engine.length(), 4000)
        self.assertEqual((g.tokens, engine.complete("x", max_tokens=3, ignore_end=True).finish), ([], "max_tokens"))

    def test_another_thread_cancels(self):
        g = self.engine.generate("x", ignore_end=True)
        next(g)
        thread = threading.Thread(target=self.engine.cancel)
        thread.start()
        thread.join()
        self.assertEqual(g.answer().finish, "cancelled")
        self.assertEqual(self.engine.complete("x", max_tokens=3, ignore_end=True).finish, "max_tokens")

    def test_threads_wait_for_each_other(self):
        expected = self.engine.complete("x", max_tokens=30, ignore_end=True).tokens
        found = [None] * 2

        def work(k):
            for _ in range(10):
                found[k] = self.engine.complete("x", max_tokens=30, ignore_end=True, slot=k).tokens

        threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [expected] * 2)

    def test_other_threads_run_meanwhile(self):
        path = tiny_model.make(Path(self.folder.name) / "long", hidden=128, layers=4, ffn=256, context=4096)
        engine = Engine(path, device="cpu")
        counts, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                counts[0] += 1
                time.sleep(0.0005)

        thread = threading.Thread(target=count)
        thread.start()
        try:
            while counts[0] == 0:
                time.sleep(0.001)
            before = counts[0]
            engine.logits([65] * 4000)  # one native call, which takes many times 0.5 ms
            after = counts[0]
        finally:
            stop.set()
            thread.join()
        # One that holds the GIL lets the other thread count once or twice, before and after it.
        self.assertGreater(after - before, 10)


if __name__ == "__main__":
    unittest.main()
