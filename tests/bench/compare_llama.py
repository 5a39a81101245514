# SPDX-License-Identifier: Apache-2.0
"""Language models in GGUF files with random weights, next to llama.cpp.

compare_llama.py TENON LLAMA_BIN_DIR [--shapes NAME ...] [--types TYPE ...] [--rounds N] [--threads N] [--device D]
                 [--files DIR] [--depth N] [--server] [--clients N]
TENON is the command; LLAMA_BIN_DIR has llama-bench and llama-server. Shapes and types are those of random_gguf.py; --files
keeps the files. Both programs are measured in turns, so that other load meets both. Prints medians, and the median of the
ratios of time or of bytes (below 1: tenon is faster or smaller). "memory" is the most that was resident, mapped files included.
--server: clients that ask both servers at the same time for completions, by streams."""
import argparse, http.client, json, os, pathlib, socket, statistics, subprocess, sys, tempfile, threading, time

import random_gguf

MIB = 1 << 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tenon", type=pathlib.Path)
    parser.add_argument("llama", type=pathlib.Path)
    parser.add_argument("--shapes", nargs="+", default=["qwen3-0.6b", "llama-3.2-1b", "moe-8x2"])
    parser.add_argument("--types", nargs="+", default=["Q4_K_M", "Q8_0", "F16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--files", type=pathlib.Path)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0, help="also decode behind so many tokens")
    parser.add_argument("--first", type=int, default=16, help="tokens of the prompt before the first token")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer of a server")
    return parser.parse_args()


def processor():
    lines = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{lines[0]}, {len(lines)} processors" if lines else "unknown processor"


def row(what, unit, pairs, over):
    """Prints the medians of (tenon's, llama.cpp's). over: more is better."""
    ratio = statistics.median(b / a if over else a / b for a, b in pairs)
    print(f"  {what:34} tenon {statistics.median(a for a, _ in pairs):10.2f} {unit:9} llama.cpp "
          f"{statistics.median(b for _, b in pairs):10.2f} {unit:9} ratio {ratio:.2f}", flush=True)


def finished(words):
    """Standard output, and the most memory that was resident, in MiB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(list(map(str, words)), stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, words))}\n{errors.read().decode()[-2000:]}")
        out.seek(0)
        return out.read().decode(), usage.ru_maxrss * 1024 / MIB


def ours(args, file, prefill, decode, depth=0):
    out, memory = finished([args.tenon, "llm", "bench", file, "--device", args.device, "--threads", args.threads, "--prefill",
                            prefill, "--decode", decode, "--depth", depth, "--repeat", 1, "--json"])
    out = json.loads(out)
    return {name: out[name]["median_seconds"] for name in ("prefill", "decode") if name in out}, memory


def theirs(args, file, prefill, decode, depth=0):
    out, memory = finished([args.llama / "llama-bench", "-m", file, "-t", args.threads, "-p", prefill, "-n", decode, "-d", depth,
                            "-r", 1, "-o", "json", *([] if args.device.startswith("cuda") else ["-ngl", 0])])
    return {"decode" if run["n_gen"] else "prefill": run["avg_ns"] * 1e-9 for run in json.loads(out)}, memory


def commands(args, file):
    long, short, deep, memory = [], [], [], []
    for _ in range(args.rounds):
        (a, a_memory), (b, b_memory) = (side(args, file, args.prefill, args.decode) for side in (ours, theirs))
        long.append((a, b))
        memory.append((a_memory, b_memory))
        short.append(tuple(side(args, file, args.first, 0)[0]["prefill"] * 1e3 for side in (ours, theirs)))
        if args.depth:
            deep.append(tuple(args.decode / side(args, file, 0, args.decode, args.depth)[0]["decode"] for side in (ours, theirs)))
    for name, tokens in (("prefill", args.prefill), ("decode", args.decode)):
        row(f"{name} {tokens}", "tokens/s", [(tokens / a[name], tokens / b[name]) for a, b in long], True)
    if deep:
        row(f"decode {args.decode} behind {args.depth}", "tokens/s", deep, True)
    row(f"first token after {args.first}", "ms", short, False)
    row("memory", "MiB", memory, False)


# ---- Servers

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def started(words, port):
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return process
        except OSError:
            pass
        time.sleep(0.2)
    process.kill()
    sys.exit(f"did not start: {' '.join(map(str, words))}")


def ask(port, prompt, tokens):
    """Seconds to the first piece of the answer, and its number of tokens."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    c, start, first, count = http.client.HTTPConnection("127.0.0.1", port, timeout=600), time.perf_counter(), None, None
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in c.getresponse():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        first = first or time.perf_counter() - start
        count = (event.get("usage") or {}).get("completion_tokens", count)
    if count != tokens:
        sys.exit(f"expected {tokens} tokens, got {count}")
    return first, count


def load(port, clients, tokens, turn):
    """Tokens per second of all clients, and their mean time to the first token in ms."""
    got, start = [], time.perf_counter()

    def client(i):
        prompt = f"{turn} client {i} asks: " + "".join(chr(97 + (turn * 7 + i * 5 + k * (i + 3)) % 26) for k in range(100))
        got.append(ask(port, prompt, tokens))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if len(got) != clients:
        sys.exit("a client failed")
    return sum(n for _, n in got) / (time.perf_counter() - start), statistics.mean(f for f, _ in got) * 1e3


def resident(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / MIB


def servers(args, file):
    context, ports = 512, (free_port(), free_port())
    words = ([args.tenon, "llm", "serve", file, "--device", args.device, "--threads", args.threads, "--slots", args.clients,
              "--context", context, "--port", ports[0]],
             [args.llama / "llama-server", "-m", file, "-t", args.threads, "-np", args.clients, "-c", context * args.clients,
              "--port", ports[1], "--host", "127.0.0.1", *([] if args.device.startswith("cuda") else ["-ngl", 0])])
    running = []
    try:
        for w, port in zip(words, ports):
            running.append(started(w, port))
        for port in ports:
            load(port, args.clients, 4, 0)  # compiles
        turns = [tuple(load(port, args.clients, args.tokens, turn) for port in ports) for turn in range(1, args.rounds + 1)]
        row(f"server, {args.clients} clients, {args.tokens} tokens each", "tokens/s", [(a[0], b[0]) for a, b in turns], True)
        row("server, first token", "ms", [(a[1], b[1]) for a, b in turns], False)
        row("server, memory", "MiB", [tuple(map(resident, running))], False)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)


def main():
    args = parse()
    print(f"{processor()}; {args.threads} threads, device {args.device}, {args.rounds} rounds")
    with tempfile.TemporaryDirectory() as temporary:
        files = args.files or pathlib.Path(temporary)
        files.mkdir(parents=True, exist_ok=True)
        for shape in args.shapes:
            for kind in args.types:
                file = files / f"{shape}-{kind}.gguf"
                if not file.exists():
                    random_gguf.write(file, shape, kind)
                print(f"{shape} {kind}, {file.stat().st_size / MIB:.0f} MiB", flush=True)
                (servers if args.server else commands)(args, file)
                if not args.files:
                    file.unlink()


main()
