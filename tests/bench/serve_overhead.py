# SPDX-License-Identifier: Apache-2.0
"""What the server adds to a token: time per token of a stream to one client, next to the decoding of `tenon llm bench`, by turns.

serve_overhead.py TENON MODEL [--tokens 128] [--rounds 5] [--device cpu] [--threads N] [--temperature T]"""
import argparse, json, re, statistics, subprocess, sys, threading, time
import http.client


def decode(args):
    done = subprocess.run([args.tenon, "llm", "bench", args.model, "--prefill", "0", "--decode", str(args.tokens), "--context", str(args.tokens + 64),
                           "--repeat", "2", "--json", *args.more], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["decode"]["median_seconds"] / args.tokens


def streamed(args, port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    times = []
    c.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": args.tokens, "temperature": args.temperature, "seed": 1, "ignore_eos": True, "stream": True,
                                                     "stream_options": {"include_usage": True}, "logprobs": args.logprobs}))
    r = c.getresponse()
    if r.status != 200:
        sys.exit(r.read().decode())
    for line in r:
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
            last = line
    made = json.loads(last[6:])["usage"]["completion_tokens"]
    # Tokens without text of their own send no event, so the tokens are counted by the usage.
    return (times[-2] - times[0]) / (made - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads")
    parser.add_argument("--logprobs", type=int)
    parser.add_argument("--temperature", type=float, default=0)
    args = parser.parse_args()
    args.more = ["--device", args.device, *(["--threads", args.threads] if args.threads else [])]
    server = subprocess.Popen([args.tenon, "llm", "serve", args.model, "--port", "0", "--slots", "1", "--context", str(args.tokens + 64), *args.more],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            sys.exit("the server did not start")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        port = int(found[1])
        streamed(args, port)
        rounds = [(decode(args), streamed(args, port), streamed(args, port)) for _ in range(args.rounds)]
    finally:
        server.terminate()
        server.wait(60)
    for d, *s in rounds:
        print(f"decode {1e3 * d:8.3f} ms per token   stream {1e3 * min(s):8.3f} ms   {100 * (min(s) / d - 1):+5.1f} %")
    best, stream = min(d for d, *_ in rounds), min(min(s) for _, *s in rounds)
    middle = statistics.median(min(s) / d for d, *s in rounds)
    print(f"best     {1e3 * best:8.3f} ms per token   stream {1e3 * stream:8.3f} ms   {100 * (stream / best - 1):+5.1f} %; median of the rounds {100 * (middle - 1):+.1f} %")


main()
