#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tokenizer.py PROBE [--seed 1] [--texts 200] [--only NAME] [--models FOLDER]

Tokenizers beside others, id by id:
- the vocabularies of llama.cpp that have texts with ids, from the source package of llama-cpp-python, which the Python index
  offers. FOLDER has them already, or they are fetched; without both, this part is left out with a word.
- models of SentencePiece, trained here and written as GGUF metadata, if the packages sentencepiece and gguf are there.
- tokenizer.json files of every kind of model and stage, which the package tokenizers trains here on random texts of mixed
  scripts. Ids, decoded texts, and texts decoded one id at a time.
Exits with 77 without the package tokenizers. PROBE is tokenizer_probe."""
import argparse
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import urllib.request

try:
    import tokenizers
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ADD_SPECIAL, PARSE_SPECIAL, DECODE, SKIP_SPECIAL, STREAM = 1, 2, 4, 8, 16
PACKAGE = "llama-cpp-python", "0.3.36"
SEPARATOR = "\n__ggml_vocab_test__\n"


class Probe:
    """A tokenizer of tenon in a process of its own."""

    def __init__(self, program, file):
        self.process = subprocess.Popen([program, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, flags, data):
        self.process.stdin.write(struct.pack("<II", flags, len(data)) + data)
        self.process.stdin.flush()
        head = self.process.stdout.read(8)
        if len(head) < 8:
            raise SystemExit("the probe has ended")
        failed, size = struct.unpack("<II", head)
        answer = self.process.stdout.read(size)
        if failed:
            raise RuntimeError(answer.decode())
        return answer

    def encode(self, text, flags=0):
        ids = self.ask(flags, text.encode() if isinstance(text, str) else text)
        return list(struct.unpack(f"<{len(ids) // 4}i", ids))

    def decode(self, ids, flags=0):
        return self.ask(DECODE | flags, struct.pack(f"<{len(ids)}i", *ids)).decode()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Score:
    def __init__(self):
        self.same, self.bad = 0, 0

    def check(self, name, what, got, expected):
        if got == expected:
            self.same += 1
            return
        self.bad += 1
        if self.bad <= 20:
            print(f"{name}: {what}\n  expected {expected!r}\n  got      {got!r}")


def fetch(folder):
    """Puts the vocabularies of the source package into the folder. Returns a reason if that is not possible."""
    name, version = PACKAGE
    try:
        request = urllib.request.Request(f"https://pypi.org/simple/{name}/",
                                         headers={"Accept": "application/vnd.pypi.simple.v1+json"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            files = json.load(reply)["files"]
        url = next(f["url"] for f in files if f["filename"].endswith(f"-{version}.tar.gz"))
        with urllib.request.urlopen(url, timeout=60) as reply:
            package = io.BytesIO(reply.read())
    except (OSError, ValueError, StopIteration) as error:
        return f"the Python index does not give {name} {version}: {error}"
    with tarfile.open(fileobj=package) as archive:
        for member in archive:
            file = pathlib.PurePosixPath(member.name)
            if member.isfile() and file.name.startswith("ggml-vocab-"):
                (folder / file.name).write_bytes(archive.extractfile(member).read())
    return None


def vocabularies(program, folder, score):
    if folder is None:
        folder = pathlib.Path(program).parent / "vocabularies"
        if not any(folder.glob("*.inp")):
            folder.mkdir(exist_ok=True)
            reason = fetch(folder)
            if reason:
                print(f"left out: {reason}")
                return
    count = 0
    for inputs in sorted(folder.glob("ggml-vocab-*.gguf.inp")):
        vocabulary = inputs.with_suffix("")
        texts = inputs.read_bytes().decode().split(SEPARATOR)
        lines = inputs.with_suffix(".out").read_text().splitlines()
        probe = Probe(program, vocabulary)
        for text, line in zip(texts, lines):
            ids = [int(i) for i in line.split()]
            score.check(vocabulary.name, repr(text), probe.encode(text), ids)
            score.check(vocabulary.name, f"{text!r} one id at a time", probe.decode(ids, STREAM), probe.decode(ids))
        probe.close()
        count += 1
    print(f"{count} vocabularies of llama.cpp")


# A model of SentencePiece: its options, and the kind that a GGUF file calls it.
PIECES = {
    "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "llama_no_prefix": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                            remove_extra_whitespaces=False, add_dummy_prefix=False),
    "t5": dict(model_type="unigram", normalization_rule_name="nmt_nfkc"),
    "t5_spaces": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf", remove_extra_whitespaces=False),
    "t5_identity": dict(model_type="unigram", normalization_rule_name="identity", add_dummy_prefix=False),
}


def sentence_pieces(program, seed, texts, score):
    try:
        import gguf
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2 as protocol
    except ImportError as missing:
        print(f"left out: {missing}")
        return
    for name, options in PIECES.items():
        rng = random.Random(f"{seed} {name}")
        trained = io.BytesIO()
        lines = [line for _ in range(500) for line in text(rng, plain=True).splitlines() if line.strip()]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=trained, vocab_size=400, minloglevel=2,
                                                 hard_vocab_limit=False, character_coverage=1.0, **options)
        pieces = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
        model = protocol.ModelProto.FromString(trained.getvalue())
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            writer = gguf.GGUFWriter(file.name, "llama")
            writer.add_tokenizer_model(name.split("_")[0])
            writer.add_token_list([p.piece for p in model.pieces])
            writer.add_token_scores([p.score for p in model.pieces])
            writer.add_token_types([p.type for p in model.pieces])
            writer.add_add_space_prefix(model.normalizer_spec.add_dummy_prefix)
            writer.add_remove_extra_whitespaces(model.normalizer_spec.remove_extra_whitespaces)
            writer.add_unk_token_id(pieces.unk_id())
            if model.normalizer_spec.precompiled_charsmap:
                writer.add_precompiled_charsmap(model.normalizer_spec.precompiled_charsmap)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.close()
            probe = Probe(program, file.name)
            for _ in range(texts):
                # The library takes a visible space for a space, and cuts texts at zero bytes.
                sample = text(rng).replace("\0", "").replace("▁", "")
                ids = pieces.encode(sample)
                got = probe.encode(sample)
                # The library adds scores in f32, so of two paths with one sum either may win.
                total = [sum(model.pieces[i].score for i in path) for path in (got, ids)]
                if got != ids and name.startswith("t5") and len(got) == len(ids) and abs(total[0] - total[1]) < 1e-4:
                    got = ids if pieces.decode(got) == pieces.decode(ids) else got
                score.check(name, repr(sample), got, ids)
                if pieces.unk_id() not in ids:
                    score.check(name, f"decoded {ids}", probe.decode(ids), pieces.decode(ids))
            probe.close()
        if model.normalizer_spec.precompiled_charsmap:
            t = tokenizers.Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], pieces.unk_id(), False))
            t.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
            t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
                file.write(t.to_str())
                file.flush()
                probe = Probe(program, file.name)
                for _ in range(texts):
                    sample = text(rng)
                    score.check(f"{name} as tokenizer.json", repr(sample), probe.encode(sample), t.encode(sample).ids)
                probe.close()
    print(f"{len(PIECES)} models of SentencePiece")


# Characters that all versions of Unicode since 3.2 know: the libraries have tables of different years.
OLD = [chr(c) for c in range(0x30000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")]
RANGES = [(0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0x9FF), (0xE00, 0xE7F),
          (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20D0, 0x20E0), (0x2150, 0x218F), (0x2460, 0x24FF),
          (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xADFF), (0xFB00, 0xFB06), (0xFF00, 0xFFEF), (0, 0x1F)]
SCRIPTS = [[c for c in OLD if low <= ord(c) <= high] for low, high in RANGES]
EMOJI = ["🚀", "🦙", "😶‍🌫️", "👩‍👩‍👧", "✅", "🇩🇪", "👍🏽"]
WORDS = ["the", "The", "and", "tokens", "I've", "don't", "'Re", "2024", "3.14", "1234567", "foo_bar", "x=y+1;", "::", "größer",
         "naïve", "Ελλάδα", "привет", "мир", "世界", "こんにちは", "안녕", "नमस्ते", "สวัสดี", "مرحبا", "ﬁn", "½", "①"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2009", "\u200b", "\u0085"]


def text(rng, special=(), plain=False):
    """plain: of few different characters, for training."""
    parts = []
    for _ in range(rng.randrange(1, 24)):
        kind = 0.6 * rng.random() if plain else rng.random()
        if kind < 0.4:
            parts.append(rng.choice(WORDS))
        elif kind < 0.65:
            parts.append(rng.choice(SPACES) if rng.random() < 0.5 else " ")
        elif kind < 0.8:
            parts.append("".join(rng.choices(rng.choice(SCRIPTS), k=rng.randrange(1, 6))))
        elif kind < 0.86:
            parts.append(rng.choice(EMOJI))
        elif kind < 0.92 and special:
            parts.append(rng.choice(special))
        elif kind < 0.95:
            parts.append(rng.choice(OLD))
        else:
            parts.append(rng.choice("aA1 .-_\n▁Ġ") * rng.randrange(1, 40))
    return "".join(parts)


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_bpe(pre, normalizer=None, **options):
    t = tokenizers.Tokenizer(models.BPE(**options))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    return t, trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|end|>", "<s>"], show_progress=False)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def behavior(kind, pattern, invert):
    return lambda: byte_bpe(split(pattern, kind, invert))


def llama(prepend):
    t = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    if prepend:
        t.normalizer = None
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend, split=False)
        t.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme=prepend), decoders.ByteFallback(), decoders.Fuse()])
    return t, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>", "<|end|>"] + [f"<0x{b:02X}>" for b in range(256)],
                                  limit_alphabet=60, show_progress=False)


def unigram(prepend, fallback=False, **normal):
    t = tokenizers.Tokenizer(models.Unigram())
    t.normalizer = normal.get("normalizer")
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(prepend_scheme=prepend), decoders.Metaspace(prepend_scheme=prepend)
    return t, trainers.UnigramTrainer(vocab_size=700, special_tokens=["<pad>", "<unk>", "<|end|>", "<s>"], unk_token="<unk>",
                                      show_progress=False)


def bert(lowercase, accents=None):
    t = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=accents)
    t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return t, trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[UNK]", "<s>", "<|end|>"], limit_alphabet=150,
                                        show_progress=False)


def plain_bpe(pre, normalizer=None, decoder=None, **options):
    t = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", **options))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    if decoder:
        t.decoder = decoder
    return t, trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", "<s>", "<|end|>"], limit_alphabet=200, show_progress=False,
                                  **{k: v for k, v in options.items() if k in ("continuing_subword_prefix", "end_of_word_suffix")})


def word_level():
    t = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return t, trainers.WordLevelTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "<|end|>"], show_progress=False)


P, N = pre_tokenizers, normalizers
KINDS = {
    "gpt2": lambda: byte_bpe(P.ByteLevel(add_prefix_space=False)),
    "roberta": lambda: byte_bpe(P.ByteLevel(add_prefix_space=True)),
    "nfc": lambda: byte_bpe(P.ByteLevel(add_prefix_space=False), N.NFC()),
    "llama3": lambda: byte_bpe(split(LLAMA3), ignore_merges=True),
    "cl100k": lambda: byte_bpe(split(CL100K)),
    "o200k": lambda: byte_bpe(split(O200K)),
    "digits": lambda: byte_bpe(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)])),
    "contiguous_digits": lambda: byte_bpe(P.Sequence([P.Digits(), P.Punctuation("contiguous"), P.ByteLevel(False)])),
    "removed": behavior("removed", r"\s+", False),
    "removed_inverted": behavior("removed", r"\w+|[^\w\s]+", True),
    "previous": behavior("merged_with_previous", r"[\s\p{P}]", False),
    "next": behavior("merged_with_next", r"[\s\p{P}]", False),
    "contiguous": behavior("contiguous", r"[\s\p{P}]", False),
    "next_inverted": behavior("merged_with_next", r"\w", True),
    "boundaries": behavior("isolated", r"\b\w|\d{2,3}+|\h{4}|[[:alpha:]]$", False),
    "lookahead": behavior("isolated", r"(?=(\d{3})+(?!\d))|^\s|(?<=a)b", False),
    "llama": lambda: llama(None),
    "llama_first": lambda: llama("first"),
    "llama_always": lambda: llama("always"),
    "llama_never": lambda: llama("never"),
    "unigram": lambda: unigram("always"),
    "unigram_first": lambda: unigram("first", normalizer=N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")])),
    "unigram_strip": lambda: unigram("never", normalizer=N.Sequence([N.Strip(left=False), N.Lowercase(), N.NFD()])),
    "bert": lambda: bert(True),
    "bert_cased": lambda: bert(False),
    "bert_accents": lambda: bert(True, False),
    "word_level": word_level,
    "whitespace": lambda: plain_bpe(P.Whitespace()),
    "whitespace_split": lambda: plain_bpe(P.WhitespaceSplit(), N.Sequence([N.NFKD(), N.StripAccents()])),
    "suffix": lambda: plain_bpe(P.BertPreTokenizer(), N.Lowercase(), decoders.BPEDecoder("</w>"), end_of_word_suffix="</w>"),
    "prefix": lambda: plain_bpe(P.Punctuation("merged_with_previous"), None, decoders.WordPiece("##", False),
                                continuing_subword_prefix="##"),
    "fused": lambda: plain_bpe(P.CharDelimiterSplit("e"), None, decoders.Fuse(), fuse_unk=True),
}
SPECIAL = ["<|end|>", "<s>", "<mask>", "word", "<norm>"]


def one_kind(program, name, seed, texts, score):
    rng = random.Random(f"{seed} {name}")
    t, trainer = KINDS[name]()
    t.train_from_iterator([text(rng, plain=rng.random() < 0.95 or "unigram" in name) for _ in range(400)], trainer)
    t.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, rstrip=rng.random() < 0.5)])
    t.add_tokens([tokenizers.AddedToken("word", single_word=True, normalized=False), tokenizers.AddedToken("<norm>", normalized=True)])
    a, b = t.token_to_id("<s>"), t.token_to_id("<|end|>")
    t.post_processor = rng.choice([
        processors.TemplateProcessing(single="<s> $A <|end|> <|end|>", special_tokens=[("<s>", a), ("<|end|>", b)]),
        processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", a)])]),
        processors.BertProcessing(("<|end|>", b), ("<s>", a)), processors.RobertaProcessing(("<|end|>", b), ("<s>", a))])
    # The package names normalized tokens by their normalized text, tenon by the text of the file.
    norm = t.token_to_id("<norm>") or t.token_to_id(t.normalizer.normalize_str("<norm>"))
    renamed = {norm} if t.id_to_token(norm) != "<norm>" else set()
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(t.to_str())
        file.flush()
        probe = Probe(program, file.name)
        for i in range(texts):
            sample = text(rng, SPECIAL)
            if i % 8 == 0:
                # Bytes that are no UTF-8 count as U+FFFD, as Python decodes them.
                raw = bytearray(sample.encode())
                for _ in range(3):
                    raw.insert(rng.randrange(len(raw) + 1), rng.choice([0x80, 0xC3, 0xE4, 0xF0, 0xFF, 0xED]))
                sample, raw = bytes(raw).decode(errors="replace"), bytes(raw)
            else:
                raw = sample.encode()
            around = i % 2 == 0
            ids = t.encode(sample, add_special_tokens=around).ids
            got = probe.encode(raw, PARSE_SPECIAL | (ADD_SPECIAL if around else 0))
            score.check(name, repr(sample), got, ids)
            skip = i % 3 == 0
            flags = SKIP_SPECIAL if skip else 0
            if not renamed & set(ids):
                score.check(name, f"decoded {ids}", probe.decode(ids, flags), t.decode(ids, skip_special_tokens=skip))
            streamed = probe.decode(ids, flags | STREAM)
            if "\ufffd" not in streamed:
                score.check(name, f"one at a time {ids}", streamed, probe.decode(ids, flags))
        probe.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--only")
    parser.add_argument("--models", type=pathlib.Path)
    options = parser.parse_args()
    score = Score()
    if not options.only:
        vocabularies(options.probe, options.models, score)
        sentence_pieces(options.probe, options.seed, options.texts, score)
    for name in [options.only] if options.only else KINDS:
        before = score.bad
        one_kind(options.probe, name, options.seed, options.texts, score)
        if score.bad > before:
            print(f"{name}: {score.bad - before} differences with --seed {options.seed}")
    print(f"{score.same} results are the same, {score.bad} differ")
    sys.exit(1 if score.bad or not score.same else 0)


main()
