# SPDX-License-Identifier: Apache-2.0
"""Clients of `tenon llm serve` that come and go at random: every answer next to the one given alone, resident memory of the server,
and the time between two tokens.

serve_clients.py TENON [--model MODEL] [--clients 32] [--seconds 600] [--slots 8] [--device cpu]
Without MODEL, a small Llama with random weights. Exits with 1 if an answer differs or memory grows by more than 10 %."""
import argparse, http.client, json, pathlib, random, re, subprocess, sys, tempfile, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model


class Server:
    def __init__(self, tenon, model, slots, device):
        self.process = subprocess.Popen([tenon, "llm", "serve", model, "--device", device, "--port", "0", "--slots", str(slots), "--queue", "64",
                                         "--context", "1024"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            sys.exit("the server did not start")
        self.port = int(found[1])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def resident(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    def open(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return c, c.getresponse()


def work_of(source):
    """A request: its path and body. Few enough are different that all can be asked alone before."""
    kind = source.randrange(4)
    text = "".join(random.Random(source.randrange(16)).choices("abcdefgh ijkl", k=1 + source.randrange(4) * 90))
    if kind == 3:
        return "/v1/embeddings", {"input": [text, text[::-1]], "encoding_format": "base64"}
    sampling = {"temperature": 0} if kind == 0 else {"temperature": 1.1, "seed": kind, "top_p": 0.9}
    return "/v1/completions", {"prompt": text, "max_tokens": 48, "ignore_eos": True, **sampling}


def ask(server, path, body, source=None, gaps=None):
    """The whole result; None if the client leaves in the middle or is refused."""
    stream = source is not None and "prompt" in body and source.random() < 0.7
    leave = source.randrange(1, 40) if source is not None and source.random() < 0.25 else None
    c, r = server.open(path, {**body, "stream": True} if stream else body)
    try:
        if r.status == 429:
            return None
        if r.status != 200:
            return f"{r.status} {r.read()[:200]}"
        if not stream:
            if leave is not None:
                return None
            j = json.loads(r.read())
            return j["choices"][0]["text"] if "choices" in j else [d["embedding"] for d in j["data"]]
        text, last = "", None
        for line in r:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            if last is not None:
                gaps.append(now - last)
            last = now
            text += json.loads(line[6:])["choices"][0]["text"]
            if leave is not None:
                leave -= 1
                if leave == 0:
                    return None
        return text
    finally:
        c.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("--model")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        model = args.model or str(tiny_model.make(place + "/small", hidden=128, layers=4, heads=4, ffn=256, context=1024, deviation=0.15))
        server = Server(args.tenon, model, args.slots, args.device)
        try:
            run(args, server)
        finally:
            server.process.terminate()
            server.process.wait(60)


def run(args, server):
    alone = {}
    for seed in range(1500):
        work = work_of(random.Random(seed))
        if (key := json.dumps(work)) not in alone:
            alone[key] = ask(server, *work)
    print(f"{len(alone)} different requests asked alone", flush=True)
    end = time.monotonic() + args.seconds
    counts, gaps, wrong, lock = {"whole": 0, "left or refused": 0}, [], [], threading.Lock()

    def client(number):
        source = random.Random(1000 + number)
        while time.monotonic() < end:
            work = work_of(random.Random(source.randrange(1500)))
            mine = []
            try:
                made = ask(server, *work, source, mine)
            except OSError as e:
                made = f"{type(e).__name__}: {e}"
            with lock:
                gaps.extend(mine)
                counts["left or refused" if made is None else "whole"] += 1
                if made is not None and made != alone[json.dumps(work)]:
                    wrong.append((work, made, alone[json.dumps(work)]))
            if source.random() < 0.1:
                time.sleep(source.random())

    def warm_memory():  # once all graphs are compiled and all clients have connections
        time.sleep(min(30, args.seconds / 5))
        return server.resident()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(args.clients)]
    for t in threads:
        t.start()
    first = warm_memory()
    for t in threads:
        t.join()
    time.sleep(1)
    last = server.resident()
    gaps.sort()
    at = lambda share: 1e3 * gaps[min(len(gaps) - 1, int(share * len(gaps)))]
    print(f"{args.clients} clients, {args.slots} slots, {args.seconds:.0f} s: {counts['whole']} results, {counts['left or refused']} clients left or were refused")
    print(f"{len(wrong)} results differ from those given alone")
    print(f"resident memory {first:.1f} MiB after the start, {last:.1f} MiB at the end")
    print(f"between two pieces of a stream: p50 {at(0.5):.2f} ms, p99 {at(0.99):.2f} ms, {len(gaps)} in all")
    for work, made, wanted in wrong[:3]:
        print(work, repr(made)[:300], repr(wanted)[:300])
    sys.exit(1 if wrong or last > 1.1 * first else 0)


main()
