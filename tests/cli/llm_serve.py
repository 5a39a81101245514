# SPDX-License-Identifier: Apache-2.0
"""`tenon llm serve` as clients meet it: answers, streams, errors, many clients at once, and how it stops.

llm_serve.py TENON TEMPLATE_PLUGIN"""
import array, base64, concurrent.futures, http.client, json, os, random, re, signal, socket, subprocess, sys, tempfile, time

import tiny_model

TENON, TEMPLATE_PLUGIN = sys.argv[1:3]
failures = []


def check(what, good, more=""):
    if not good:
        failures.append(what)
        print(f"FAIL {what} {more}", flush=True)


class Server:
    def __init__(self, folder, *options, device="cpu", env=None):
        self.process = subprocess.Popen([TENON, "llm", "serve", folder, "--device", device, "--port", "0", *options],
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        line = ""
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise SystemExit(f"the server did not start: {line}")

    def ask(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request(method, path, None if body is None else json.dumps(body) if not isinstance(body, (str, bytes)) else body,
                  {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, json.loads(text) if r.headers.get_content_type() == "application/json" else text

    def text(self, prompt, **more):
        status, j = self.ask("POST", "/v1/completions", {"prompt": prompt, "temperature": 0, **more})
        return j["choices"][0]["text"] if status == 200 else f"{status} {j}"

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        return code, self.process.stderr.read()


def events(text):
    parts = text.split("\n\n")
    check("events end with [DONE]", parts[-2:] == ["data: [DONE]", ""], parts[-2:])
    return [json.loads(p.removeprefix("data: ")) for p in parts[:-2]]


def usual(server):
    status, j = server.ask("GET", "/health")
    check("health", (status, j) == (200, {"status": "ok"}), j)
    check("models", server.ask("GET", "/v1/models")[1]["data"][0]["id"] == "tiny")
    check("page", "<html" in server.ask("GET", "/")[1])
    check("tokens", server.ask("POST", "/tokenize", {"content": "ab"})[1]["tokens"] == [97, 98])
    check("text of tokens", server.ask("POST", "/detokenize", {"tokens": [97, 98]})[1]["content"] == "ab")
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20, "temperature": 0}
    status, whole = server.ask("POST", "/v1/chat/completions", body)
    check("chat", status == 200 and whole["usage"]["completion_tokens"] <= 20, whole)
    said = whole["choices"][0]["message"]["content"]
    status, stream = server.ask("POST", "/v1/chat/completions", {**body, "stream": True,
                                                                 "stream_options": {"include_usage": True}})
    parts = events(stream)
    streamed = "".join(p["choices"][0]["delta"].get("content", "") for p in parts if p["choices"])
    check("a stream says what the whole answer says", streamed == said, (streamed, said))
    check("usage of a stream", parts[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"])
    system, developer = ({**body, "messages": [{"role": role, "content": "Be brief."}] + body["messages"]} for role in ("system", "developer"))
    answers = [server.ask("POST", "/v1/chat/completions", b)[1] for b in (system, developer)]
    check("a developer's message is a system's", "choices" in answers[1] and len({
        (a["choices"][0]["message"]["content"], a["usage"]["prompt_tokens"]) for a in answers}) == 1, answers)
    again = server.ask("POST", "/v1/chat/completions", body)[1]
    check("the cache does not change the answer", again["choices"][0]["message"]["content"] == said)
    check("the prompt was cached", again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, again["usage"])


def sampling(server):
    body = {"prompt": "abc", "max_tokens": 12, "temperature": 1.5, "ignore_eos": True}
    drawn = [server.text(**{**body, "seed": s}) for s in (1, 1, 2, 3)]
    check("a seed repeats its text", drawn[0] == drawn[1], drawn)
    check("other seeds give other texts", len(set(drawn)) > 1, drawn)
    plain = server.text("abc", max_tokens=12, ignore_eos=True)
    j = server.ask("POST", "/v1/completions", {"prompt": "abc", "max_tokens": 3, "temperature": 0, "logprobs": 2,
                                               "ignore_eos": True})[1]["choices"][0]["logprobs"]
    check("logprobs are of what was drawn", all(
        abs(lp - max(top.values())) < 1e-6 and lp <= 0 for lp, top in zip(j["token_logprobs"], j["top_logprobs"])), j)
    ascii_at = next((i for i in range(3, len(plain)) if plain[i].isascii() and plain[i] not in plain[:i]), None)
    if ascii_at is not None:
        stopped = server.text("abc", max_tokens=12, ignore_eos=True, stop=[plain[ascii_at]])
        check("stop texts", stopped == plain[:ascii_at], (stopped, plain))
    token = server.ask("POST", "/tokenize", {"content": "z"})[1]["tokens"][0]
    check("a bias decides", server.text("abc", max_tokens=3, logit_bias={str(token): 100}) == "zzz")
    j = server.ask("POST", "/v1/completions", {"prompt": "abc", "n": 3, "max_tokens": 5, "temperature": 1, "seed": 7})[1]
    check("n answers", [c["index"] for c in j["choices"]] == [0, 1, 2])


def no_schema(server):
    bad = {"no value": {"type": "integer", "minimum": 2, "maximum": 1}, "no end": {"$ref": "#"},
           "too many ways": {"enum": [f"v{i}" for i in range(5000)]}}
    for what, schema in bad.items():
        status, j = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}})
        check(f"a schema with {what} is the client's fault", status == 400 and "grammar: " in j["error"]["message"], (status, j))


def schemas(server):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    for seed in range(6):
        status, j = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "temperature": 1, "seed": seed, "max_tokens": 300,
            "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}})
        text = j["choices"][0]["message"]["content"] if status == 200 else ""
        try:
            made = json.loads(text)
            good = list(made) == ["name", "age"] and isinstance(made["age"], int) and len(made["name"]) <= 5
        except ValueError:
            good = False
        check("JSON by a schema", good and j["choices"][0]["finish_reason"] == "stop", (status, j))
    status, j = server.ask("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "format": "odd", "not": {}}}}})
    check("a keyword that nobody knows is refused", status == 400 and "not" in j["error"]["message"], (status, j))


def embeddings(server, folder):
    texts = ["Hello", "some other text " * 20, "a"]
    listed = subprocess.run([TENON, "llm", "embed", folder, *texts, "--device", "cpu"], capture_output=True, text=True, check=True)
    wanted = [json.loads(line)["embedding"] for line in listed.stdout.splitlines()]
    status, j = server.ask("POST", "/v1/embeddings", {"input": texts, "model": "tiny"})
    made = [d["embedding"] for d in j["data"]] if status == 200 else j
    check("embeddings are those of llm embed", made == wanted, (made, wanted))
    check("usage of embeddings", j["usage"]["prompt_tokens"] == sum(map(len, texts)), j["usage"])
    coded = server.ask("POST", "/v1/embeddings", {"input": texts, "encoding_format": "base64"})[1]["data"]
    exact = [list(array.array("f", base64.b64decode(d["embedding"]))) for d in coded]
    check("base64", exact == [list(array.array("f", v)) for v in wanted], exact)
    tokens = [list(t.encode()) for t in texts]
    check("token ids", [d["embedding"] for d in server.ask("POST", "/v1/embeddings", {"input": tokens})[1]["data"]] == wanted)
    short = server.ask("POST", "/v1/embeddings", {"input": texts[0], "dimensions": 8})[1]["data"][0]["embedding"]
    length = sum(v * v for v in wanted[0][:8]) ** 0.5
    check("dimensions", len(short) == 8 and max(abs(a - b / length) for a, b in zip(short, wanted[0])) < 1e-6, short)
    prompt = "an answer beside embeddings"
    alone = server.text(prompt, max_tokens=40, ignore_eos=True)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(server.text, prompt, max_tokens=40, ignore_eos=True) for _ in range(3)]
        others = [pool.submit(server.ask, "POST", "/v1/embeddings", {"input": texts * 5}) for _ in range(6)]
        check("answers beside embeddings are those alone", all(a.result() == alone for a in answers))
        check("embeddings beside answers are those alone",
              all([d["embedding"] for d in o.result()[1]["data"]] == wanted * 5 for o in others))
    check("embeddings are counted", "tenon_embeddings_total 100\n" in server.ask("GET", "/metrics")[1])


def errors(server):
    long = "context_length_exceeded"
    for path, body, status, word, code in [
            ("/v1/completions", "{", 400, "JSON", None), ("/v1/completions", {}, 400, "prompt", "missing_required_parameter"),
            ("/v1/completions", {"prompt": "a", "top_p": 2}, 400, "top_p", "decimal_above_max_value"),
            ("/v1/completions", {"prompt": "a", "wrong": 1}, 400, "wrong", "unknown_parameter"),
            ("/v1/completions", {"prompt": "a", "model": "other"}, 404, "other", "model_not_found"),
            ("/v1/completions", {"prompt": "a" * 600}, 400, "600", long),
            ("/v1/completions", {"prompt": ""}, 400, "no tokens", None),
            ("/v1/chat/completions", {"messages": [{"role": "odd", "content": "a"}]}, 400, "unknown role odd", None),
            ("/v1/nothing", {}, 404, "no such path", "unknown_url"),
            ("/v1/embeddings", {"input": ["a", "b" * 401]}, 400, "input 1 has 401 tokens; expected 1 to 400", long)]:
        got, j = server.ask("POST", path, body)
        check(f"{path} {str(body)[:40]}", got == status and word in j["error"]["message"] and j["error"]["code"] == code, (got, j))
    check("GET where POST belongs", server.ask("GET", "/v1/completions")[0] == 405)
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(os.urandom(300) + b"\r\n\r\n")
        s.settimeout(60)
        check("noise", s.recv(100).startswith(b"HTTP/1.1 400"))


def many(server):
    """Clients that come and go: each answer must be what it is alone."""
    prompts = ["".join(random.Random(i).choices("abcdefgh ", k=3 + i * 7 % 40)) for i in range(12)]
    alone = {p: server.text(p, max_tokens=10) for p in prompts}

    def client(number):
        source, wrong = random.Random(number), 0
        for _ in range(12):
            p = source.choice(prompts)
            if source.random() < 0.25:  # leaves in the middle
                with socket.create_connection(("127.0.0.1", server.port)) as s:
                    body = json.dumps({"prompt": p, "max_tokens": 200, "stream": True, "ignore_eos": True})
                    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                    s.recv(source.choice([1, 200]))
                continue
            wrong += server.text(p, max_tokens=10) != alone[p]
        return wrong

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        check("answers among others are those alone", sum(pool.map(client, range(8))) == 0)
    for _ in range(600):
        numbers = server.ask("GET", "/metrics")[1]
        if "tenon_requests_running 0\n" in numbers and "tenon_requests_waiting 0\n" in numbers:
            return
        time.sleep(0.1)
    check("nothing runs once all have gone", False, numbers)


def small_cache(tiny):
    """Eight slots with room for 400 tokens each, in a cache of 480: answers wait for room, and share what they can."""
    server = Server(tiny, "--slots", "8", "--context", "400", "--cache-tokens", "480")
    prefix = "The same beginning. " * 11
    alone = [server.text(prefix + str(i), max_tokens=120, ignore_eos=True) for i in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        among = list(pool.map(lambda i: server.text(prefix + str(i), max_tokens=120, ignore_eos=True), range(6)))
    check("answers that wait for room are those alone", among == alone, (among, alone))
    status, j = server.ask("POST", "/v1/completions", {"prompt": "a" * 400})
    check("a prompt that never fits is refused", status == 400 and "400" in j["error"]["message"], (status, j))
    check("SIGTERM ends the server with a small cache", server.stop()[0] == 0)
    done = subprocess.run([TENON, "llm", "serve", tiny, "--device", "cpu", "--port", "0", "--context", "400",
                           "--cache-tokens", "300"], capture_output=True, text=True)
    check("a cache below the context is refused", done.returncode == 1 and "at least 400 tokens" in done.stderr, done.stderr)


def live_prefix(folder, cached, *options, device="cpu"):
    """A prompt that begins as that of an answer that goes on."""
    server = Server(folder, "--slots", "2", "--context", "8192", *options, device=device)
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    prefix = "Another beginning. " * 11
    alone = server.text(prefix + "and more", max_tokens=12, ignore_eos=True)
    for other in "xy":  # takes the slot that has read it
        server.text(other * 500, max_tokens=1)
    c.request("POST", "/v1/completions", json.dumps({"prompt": prefix, "max_tokens": 7900, "ignore_eos": True, "stream": True}))
    r = c.getresponse()
    r.readline()
    j = server.ask("POST", "/v1/completions", {"prompt": prefix + "and more", "max_tokens": 12, "ignore_eos": True,
                                               "temperature": 0})[1]
    got = j["usage"]["prompt_tokens_details"]["cached_tokens"]
    check(f"{device}: a prefix that is in use is not read again", got == cached, j["usage"])
    check(f"{device}: the answer is the one alone", j["choices"][0]["text"] == alone, (j, alone))
    check(f"{device}: it is in use", "tenon_requests_running 0\n" not in server.ask("GET", "/metrics")[1])
    c.close()
    server.stop()


def main():
    with tempfile.TemporaryDirectory() as folder:
        tiny = str(tiny_model.make(folder + "/tiny"))
        server = Server(tiny, "--slots", "3", "--chunk", "8", "--context", "400")
        embeddings(server, tiny)
        for part in (usual, sampling, schemas, no_schema, errors, many):
            part(server)
        code, rest = server.stop()
        check("SIGTERM ends it", code == 0 and "stops when the running answers end" in rest, (code, rest))
        small_cache(tiny)
        long = str(tiny_model.make(folder + "/long", context=8192))
        live_prefix(long, 192)  # whole blocks are shared
        live_prefix(long, 209, "--plugin", TEMPLATE_PLUGIN, device="template")  # all rows are copied

        server = Server(tiny, "--slots", "1", "--queue", "0", env={"TENON_API_KEY": "secret"})
        status, j = server.ask("GET", "/v1/models")
        check("without the key", status == 401 and j["error"]["code"] == "invalid_api_key", (status, j))
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n")
            check("without the key, the body is not waited for", s.recv(100).startswith(b"HTTP/1.1 401"))
        key = {"Authorization": "Bearer secret"}
        check("with the key", server.ask("GET", "/v1/models", headers=key)[0] == 200)
        # An answer that runs when the server is told to stop comes to its end.
        long = {"prompt": "a", "max_tokens": 150, "ignore_eos": True, "temperature": 0, "stream": True}
        c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        c.request("POST", "/v1/completions", json.dumps(long), key)
        r = c.getresponse()
        r.readline()
        server.process.send_signal(signal.SIGTERM)
        text = "data: {}\n" + r.read().decode()
        check("the answer ended", text.endswith("data: [DONE]\n\n"), text[-200:])
        check("SIGTERM ends it once the answer has ended", server.process.wait(timeout=60) == 0)

        server = Server(tiny, "--pooling", "last")
        listed = subprocess.run([TENON, "llm", "embed", tiny, "Hello", "--pooling", "last", "--device", "cpu"], capture_output=True, text=True)
        made = server.ask("POST", "/v1/embeddings", {"input": "Hello"})[1]["data"][0]["embedding"]
        check("--pooling", made == json.loads(listed.stdout)["embedding"], made)
        server.stop()

        busy = socket.create_server(("127.0.0.1", 0))
        done = subprocess.run([TENON, "llm", "serve", tiny, "--port", str(busy.getsockname()[1])], capture_output=True, text=True)
        check("a port that is taken", done.returncode == 1 and "cannot listen" in done.stderr, done.stderr)
        done = subprocess.run([TENON, "llm", "serve", tiny, "--name", ""], capture_output=True, text=True, timeout=60)
        check("an empty --name", done.returncode == 2 and "--name: expected a text" in done.stderr, done.stderr)
        done = subprocess.run([TENON, "llm", "serve", folder + "/none"], capture_output=True, text=True)
        check("a folder that does not exist", done.returncode == 1 and "none" in done.stderr, done.stderr)
    if failures:
        sys.exit(f"{len(failures)} failed")
    print("ok")


main()
