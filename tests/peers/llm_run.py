# SPDX-License-Identifier: Apache-2.0
"""`tenon llm run` against transformers: a folder with weights, tokenizer and chat template; answers of greedy decoding.

llm_run.py TENON
Exits with 77 (skip) where torch, transformers or tokenizers is absent."""
import os, pathlib, pty, subprocess, sys, tempfile

try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch, transformers as T
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
SPECIAL = ["<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]


def make(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([pathlib.Path("/usr/share/common-licenses/GPL-3").read_text()], trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    text = T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    text.chat_template = TEMPLATE
    text.save_pretrained(folder)
    torch.manual_seed(0)
    model = T.AutoModelForCausalLM.from_config(T.Qwen3Config(
        vocab_size=len(text), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, initializer_range=0.15,
        eos_token_id=text.convert_tokens_to_ids("</s>")), dtype=torch.float32).eval()
    # Ends after <|end|>, too.
    model.generation_config.eos_token_id = [text.convert_tokens_to_ids(t) for t in ("</s>", "<|end|>")]
    model.save_pretrained(folder)
    return text, model


def theirs(text, model, ids, count):
    ids = torch.tensor([ids])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0)
    return text.decode(out[0, ids.shape[1]:], skip_special_tokens=True)


def ours(tenon, folder, *words, **more):
    done = subprocess.run([tenon, "llm", "run", folder, "--device", "cpu", "--greedy", *words], capture_output=True, **more)
    return done.stdout.decode("utf-8", "replace").removesuffix("\n") if done.returncode == 0 else done.stderr.decode()


def converse(tenon, folder, lines, count):
    """A conversation typed on a terminal. Returns what the command prints to standard output."""
    outer, inner = pty.openpty()
    command = subprocess.Popen([tenon, "llm", "run", folder, "--device", "cpu", "--greedy", "--tokens", str(count)], stdin=inner,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.close(inner)
    os.write(outer, "".join(line + "\n" for line in lines).encode() + b"\x04")
    out = command.communicate(timeout=120)[0]
    os.close(outer)
    return out.decode("utf-8", "replace")


def main():
    tenon, good = sys.argv[1], True
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()

    def check(name, got, expected):
        nonlocal good
        good &= got == expected
        print(f"{'ok ' if got == expected else 'BAD'} {name}: {got!r}" + ("" if got == expected else f", expected {expected!r}"))

    with tempfile.TemporaryDirectory() as folder:
        text, model = make(folder)

        def chat(*messages):
            return text.apply_chat_template([dict(role=r, content=c) for r, c in messages], add_generation_prompt=True,
                                            return_dict=False)

        question = "Wer bist Du, größe? 世界"
        check("chat", ours(tenon, folder, "--prompt", question, "--tokens", "24"),
              theirs(text, model, chat(("user", question)), 24))
        check("chat with a system message, from standard input",
              ours(tenon, folder, "--system", "Be brief.", "--tokens", "24", input=(question + "\n").encode()),
              theirs(text, model, chat(("system", "Be brief."), ("user", question)), 24))
        check("raw", ours(tenon, folder, "--raw", "--prompt", "You may copy", "--tokens", "40"),
              theirs(text, model, text("You may copy").input_ids, 40))
        ids = text("You may copy").input_ids
        with torch.no_grad():
            expected = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=9, pad_token_id=0)[0, len(ids):]
        check("ids", ours(tenon, folder, "--ids", ",".join(map(str, ids)), "--tokens", "9"),
              ",".join(map(str, expected.tolist())))
        first = theirs(text, model, chat(("user", "One")), 8)
        second = theirs(text, model, chat(("user", "One"), ("assistant", first), ("user", "Two")), 8)
        check("conversation", converse(tenon, folder, ["One", "Two"], 8), f"{first}\n{second}\n")
        file = f"{folder}/model.gguf"
        made = subprocess.run([tenon, "llm", "convert", folder, file, "--type", "F32"], capture_output=True, text=True)
        check("convert to GGUF", made.returncode, 0)
        check("chat with the GGUF file", ours(tenon, file, "--prompt", question, "--tokens", "24"),
              theirs(text, model, chat(("user", question)), 24))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
