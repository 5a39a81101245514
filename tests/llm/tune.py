# SPDX-License-Identifier: Apache-2.0
"""`tenon llm tune` without packages of Python: the loss falls, gradients are those of finite differences, a training that
stops and goes on gives the bits of one that does not, and what is learned of each form of data. tests/peers compares it
with PyTorch and PEFT.

tune.py TENON LLM_PROBE"""
import array, json, math, pathlib, re, shutil, signal, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

TENON, PROBE = sys.argv[1:3]
failures = []
TEXT = "The quick brown fox jumps over the lazy dog. " * 20


def check(what, good, more=""):
    if not good:
        failures.append(what)
        print(f"FAIL {what} {more}", flush=True)


def tune(*options, fails=None):
    done = subprocess.run([TENON, "llm", "tune", *map(str, options), "--device", "cpu"], capture_output=True, text=True)
    if fails is None:
        check(f"tune {options}", done.returncode == 0, done.stderr)
    else:
        check(f"refused: {options}", done.returncode in (1, 2) and fails in done.stderr, done.stderr)
    return done.stdout


def losses(folder):
    return [loss for _, loss in json.loads((folder / "tuning.json").read_text())["losses"]]


def same(what, a, b, names=("adapter_model.safetensors", "optimizer.safetensors")):
    for name in names:
        check(f"{what}: {name}", (a / name).read_bytes() == (b / name).read_bytes())


def bits(at, model, data):
    base = [model, "--data", data, "--learning-rate", "1e-2", "--steps", "12", "--batch", "2", "--length", "32", "--rank", "4",
            "--warmup", "2", "--weight-decay", "0.1"]
    for name, more in (("plain", []), ("dropout", ["--dropout", "0.2", "--accumulate", "3"]), ("gguf", [])):
        options = [at / "model.gguf", *base[1:]] if name == "gguf" else base
        whole, parts = at / f"whole_{name}", at / f"parts_{name}"
        tune(*options, *more, "--output", whole)
        out = tune(*options, *more, "--output", parts, "--stop-after", "5")
        check("it says how to go on", "--resume" in out, out)
        check("half is not all", (whole / "adapter_model.safetensors").read_bytes() !=
              (parts / "adapter_model.safetensors").read_bytes())
        tune("--resume", parts)
        same(f"{name}: 5 + 7 steps are 12", whole, parts)
        check(f"{name}: losses", losses(whole) == losses(parts))
        tune("--resume", parts, "--rank", "8", fails="--rank: the training in")
    check("dropout is random", losses(at / "whole_dropout") != losses(at / "whole_plain"))
    # More rows than logits are computed of at a time.
    large = [model, "--data", data, "--learning-rate", "1e-2", "--steps", "4", "--batch", "3", "--length", "150"]
    for name, more in (("checkpoint", ["--checkpoint"]), ("kept", [])):
        tune(*large, *more, "--output", at / name)
    near = max(abs(a - b) for a, b in zip(losses(at / "checkpoint"), losses(at / "kept"), strict=True))
    check("--checkpoint changes no loss", near < 1e-5, near)
    tune(*base, "--output", at / "whole_plain", fails="--force replaces")
    tune(*base, "--output", model, fails="expected a new or empty folder")
    # What cannot be saved is told before the training.
    for name in ("adapter_model.safetensors", "adapter_config.json", "tuning.json", "optimizer.safetensors"):
        taken = at / f"taken_{name}"
        (taken / name / "deeper").mkdir(parents=True)
        for more in ((), ("--force",)):
            out = tune(*base, *more, "--output", taken, fails=f"{name}: is a directory, expected a file")
            check("no step was made", out == "", out)
    (at / "a_file").write_text("")
    tune(*base, "--output", at / "a_file", fails="a_file: create: ")
    tune(*base, "--output", at / "a_file" / "deeper", fails="deeper: create: ")


def loss_of(at, model, adapter, ids):
    (at / "ids").write_text(" ".join(map(str, ids[:-1])))
    subprocess.run([PROBE, model, at / "ids", at / "logits", "cpu", "prefill", "--lora", adapter], check=True)
    logits = array.array("f", (at / "logits").read_bytes())
    vocab, sum_ = len(logits) // (len(ids) - 1), 0
    for i, label in enumerate(ids[1:]):
        row = logits[i * vocab:(i + 1) * vocab]
        top = max(row)
        sum_ += top + math.log(sum(math.exp(x - top) for x in row)) - row[label]
    return sum_ / (len(ids) - 1)


def differences(at, model):
    """The gradients of one step, which the moments of AdamW tell, against finite differences of the loss of llm_probe."""
    text = "finite differences of a loss"
    (at / "short.txt").write_text(text)
    folder = at / "differences"
    tune(model, "--data", at / "short.txt", "--length", "32", "--rank", "2", "--clip", "0", "--steps", "40", "--learning-rate",
         "1e-2", "--output", folder, "--stop-after", "20")  # then B is not zero any more
    adapter = tiny_model.read_tensors(folder / "adapter_model.safetensors")
    before = tiny_model.read_tensors(folder / "optimizer.safetensors")
    moved = at / "moved"
    shutil.copytree(folder, moved)
    tune("--resume", folder, "--stop-after", "21")
    behind = tiny_model.read_tensors(folder / "optimizer.safetensors")
    check("the loss of llm_probe is that of the training", abs(loss_of(at, model, moved, list(text.encode())) - losses(folder)[20])
          < 1e-5)
    step, seen = 0.02, 0
    for name in [n for n in adapter if ".layers.1." in n or "layers.0.self_attn.q" in n]:
        shape, numbers = adapter[name]
        gradients = [(y - 0.9 * x) / 0.1 for x, y in zip(before[name + ".m"][1], behind[name + ".m"][1], strict=True)]
        at_most = max(range(len(numbers)), key=lambda i: abs(gradients[i]))
        two = []
        for sign in (1, -1):
            changed = list(numbers)
            changed[at_most] += sign * step
            tiny_model.write_tensors(moved / "adapter_model.safetensors", adapter | {name: (shape, changed)})
            two.append(loss_of(at, model, moved, list(text.encode())))
        slope = (two[0] - two[1]) / (2 * step)
        seen += abs(slope) > 1e-3
        check(f"gradient of {name}", abs(slope - gradients[at_most]) < 2e-4 + 0.02 * abs(slope), (slope, gradients[at_most]))
    check("gradients are seen", seen > 8, seen)


def interrupted(at, model, data):
    out = at / "stopped"
    run = subprocess.Popen([TENON, "llm", "tune", model, "--data", data, "--output", out, "--steps", "1000000", "--length", "32",
                            "--log-every", "1", "--accumulate", "2", "--device", "cpu"], stdout=subprocess.PIPE, text=True)
    for line in run.stdout:
        if line.startswith("step 3/"):
            break
    run.send_signal(signal.SIGINT)
    rest = run.stdout.read()
    check("Ctrl-C ends with 130", run.wait() == 130, run.returncode)
    check("Ctrl-C saves", "interrupted; continue with" in rest, rest)
    done = json.loads((out / "tuning.json").read_text())["done_steps"]
    whole = at / "not_stopped"
    for folder, options in ((out, ["--resume", out]), (whole, [model, "--data", data, "--output", whole, "--steps", "1000000",
                                                               "--length", "32", "--accumulate", "2"])):
        tune(*options, "--stop-after", str(done + 2))
    same("interrupted and gone on", out, whole)


def forms(at, model):
    """Bytes are tokens, so each count is known."""
    lines = {
        "text": ({"text": "abcd"}, 4),                                       # b, c, d and the end
        "answer": ({"prompt": "abc", "completion": "de"}, 3),               # d, e and the end
        "chat": ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"},
                               {"role": "user", "content": "so"}, {"role": "assistant", "content": "no"}]}, 7),
    }
    for name, (line, count) in lines.items():
        file = at / f"{name}.jsonl"
        file.write_text(json.dumps(line) + "\n\n" + json.dumps(line) + "\n")
        out = tune(model, "--data", file, "--output", at / f"form_{name}", "--steps", "1")
        check(f"{name}: what is learned", f"2 examples, {2 * count} tokens to learn" in out, out)
    cut = at / "cut.jsonl"
    cut.write_text(json.dumps({"prompt": "a" * 20, "completion": "bcd"}) + "\n" + json.dumps({"prompt": "a" * 40, "completion": "b"}))
    out = tune(model, "--data", cut, "--output", at / "form_cut", "--steps", "1", "--length", "20")
    check("cut", "1 examples, 1 tokens" in out and "2 lost their end" in out and "1 left out" in out, out)
    for text, word in (("{", "bad.jsonl:2"), ('["a"]', "expected an object"), ('{"txt": "a"}', "expected the keys"),
                       ('{"prompt": "a"}', "'completion'"), ('{"text": 3}', "'text'"), ('{"messages": 3}', "expected a list"),
                       ('{"messages": [{"role": "god", "content": "x"}]}', "unknown role god")):
        bad = at / "bad.jsonl"
        bad.write_text('{"text": "fine"}\n' + text)
        tune(model, "--data", bad, "--output", at / "bad", fails=word)
    for name, text in (("empty.txt", ""), ("empty.jsonl", '{"messages": [{"role": "user", "content": "a"}]}')):
        (at / name).write_text(text)
        tune(model, "--data", at / name, "--output", at / "bad", fails=f"{name}: nothing to learn; expected")
    for options, word in ((["--targets", "q_proj,x_proj"], "no product 'x_proj'; expected some of"), (["--length", "513"], "context"),
                          (["--validation", at / "none.txt"], "none.txt"), (["--rank", "0"], "--rank")):
        tune(model, "--data", at / "text.jsonl", "--output", at / "bad", *options, fails=word)
    check("nothing is written by what is refused", not (at / "bad").exists())


def main():
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        model = tiny_model.make(at / "model", deviation=0.1)
        subprocess.run([TENON, "llm", "convert", model, at / "model.gguf", "--type", "Q8_0"], check=True, capture_output=True)
        data = at / "data.txt"
        data.write_text(TEXT)
        learn = at / "learn"
        out = tune(model, "--data", data, "--validation", data, "--output", learn, "--learning-rate", "2e-2", "--epochs", "4",
                   "--batch", "4", "--length", "64", "--targets", "q_proj,v_proj,down_proj,lm_head", "--rank", "8")
        curve = [float(x) for x in re.findall(r"validation ([\d.]+)", out)]
        check("the loss falls", len(curve) > 2 and curve[0] > 5 and curve[-1] < 0.6 * curve[0], curve)
        config = json.loads((learn / "adapter_config.json").read_text())
        check("adapter_config.json", config["peft_type"] == "LORA" and config["r"] == 8 and config["lora_alpha"] == 16 and
              sorted(config["target_modules"]) == ["down_proj", "lm_head", "q_proj", "v_proj"], config)
        bits(at, model, data)
        differences(at, model)
        interrupted(at, model, data)
        forms(at, model)
    if failures:
        sys.exit(f"{len(failures)} failed")
    print("ok")


main()
