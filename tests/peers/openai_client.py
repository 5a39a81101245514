# SPDX-License-Identifier: Apache-2.0
"""The server as OpenAI's own Python client sees it: chats, completions, streams, log probabilities, schemas, tools, embeddings, and
errors as the client's exceptions.

openai_client.py TENON
Exits with 77 (skip) where the package openai is absent."""
import asyncio, json, os, pathlib, re, subprocess, sys, tempfile, threading

try:
    import openai
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

TENON = sys.argv[1]
HI = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
failures = []


def check(what, good, more=""):
    print(f"{'ok ' if good else 'BAD'} {what}" + ("" if good else f": {more}"), flush=True)
    if not good:
        failures.append(what)


def raises(what, kind, words, call):
    try:
        got = call()
    except openai.APIError as e:
        check(what, type(e) is kind and re.search(words, str(e)), f"{type(e).__name__}: {e}")
        return e
    check(what, False, got)
    return None


class Server:
    def __init__(self, folder, *options, key=None):
        env = {**os.environ, **({"TENON_API_KEY": key} if key else {})}
        self.process = subprocess.Popen([TENON, "llm", "serve", folder, "--device", "cpu", "--port", "0", *options],
                                        stderr=subprocess.PIPE, text=True, env=env)
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise SystemExit("the server did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.url = f"http://127.0.0.1:{found[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def chat(client):
    fixed = dict(model="tiny", messages=HI, temperature=0, max_tokens=24)
    whole = client.chat.completions.create(**fixed)
    choice = whole.choices[0]
    check("chat", choice.message.role == "assistant" and choice.finish_reason in ("stop", "length") and whole.object == "chat.completion", whole)
    check("usage", whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens and
          0 < whole.usage.completion_tokens <= 24, whole.usage)
    chunks = list(client.chat.completions.create(**fixed, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check("a stream", text == choice.message.content and chunks[0].choices[0].delta.role == "assistant", (text, choice.message.content))
    check("usage of a stream", chunks[-1].usage.completion_tokens == whole.usage.completion_tokens and not chunks[-1].choices, chunks[-1])
    check("one reason to finish", [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [choice.finish_reason])
    drawn = [client.chat.completions.create(model="tiny", messages=HI, temperature=1.2, seed=s, max_tokens=16).choices[0].message.content
             for s in (1, 1, 2)]
    check("seed", drawn[0] == drawn[1] != drawn[2], drawn)
    several = client.chat.completions.create(model="tiny", messages=HI, n=3, temperature=1, seed=5, max_tokens=8)
    check("n", [c.index for c in several.choices] == [0, 1, 2] and len({c.message.content for c in several.choices}) > 1, several)
    letter = next((c for c in text[1:] if c.isascii() and c.isprintable() and c not in text[:1]), None)
    if letter:
        stopped = client.chat.completions.create(**fixed, stop=[letter]).choices[0]
        check("stop", stopped.message.content == text[:text.index(letter)] and stopped.finish_reason == "stop", stopped)
        with client.chat.completions.stream(**fixed, stop=[letter]) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion().choices[0].message.content or ""
        check("the client's stream helper", final == text[:text.index(letter)], final)
    old = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                                         temperature=0, max_completion_tokens=5)
    check("max_completion_tokens and parts of text", old.usage.completion_tokens <= 5, old)
    biased = client.chat.completions.create(**{**fixed, "max_tokens": 4}, logit_bias={"65": 100})
    check("logit_bias", biased.choices[0].message.content == "AAAA", biased)


def logprobs(client):
    r = client.chat.completions.create(model="tiny", messages=HI, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    check("logprobs", len(content) >= 5 and all(
        len(t.top_logprobs) == 3 and t.top_logprobs[0].token == t.token and t.top_logprobs[0].logprob == t.logprob <= 0
        and bytes(t.bytes).decode("utf-8", "replace") == t.token for t in content), content)
    chunks = list(client.chat.completions.create(model="tiny", messages=HI, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3, stream=True))
    streamed = [t for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    check("logprobs of a stream", streamed == content, (streamed, content))


def completions(client):
    r = client.completions.create(model="tiny", prompt="abc", max_tokens=8, temperature=0, logprobs=2, echo=False)
    c = r.choices[0]
    check("completion", len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) == r.usage.completion_tokens and "".join(c.logprobs.tokens), c)
    text = "".join(p.choices[0].text for p in client.completions.create(model="tiny", prompt="abc", max_tokens=8, temperature=0, stream=True))
    check("a stream of a completion", text == c.text, (text, c.text))
    two = client.completions.create(model="tiny", prompt=["abc", "d"], max_tokens=8, temperature=0)
    check("several prompts", two.choices[0].text == c.text and two.choices[1].index == 1, two)


def schemas(client):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    for stream in (False, True):
        more = dict(model="tiny", messages=HI, temperature=1, seed=4, max_tokens=300, stream=stream, response_format={
            "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}})
        r = client.chat.completions.create(**more)
        text = "".join(c.choices[0].delta.content or "" for c in r if c.choices) if stream else r.choices[0].message.content
        made = json.loads(text)
        check(f"a JSON schema{' in a stream' if stream else ''}", list(made) == ["name", "age"] and isinstance(made["age"], int), text)
    try:
        import pydantic
    except ImportError:
        return

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=6)
        age: int

    parsed = client.chat.completions.parse(model="tiny", messages=HI, temperature=1, seed=4, max_tokens=300, response_format=Person)
    check("parse() with a class of pydantic", isinstance(parsed.choices[0].message.parsed, Person), parsed)


def tools(client):
    """A schema forces the text of a call."""
    weather = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"], "additionalProperties": False}}}]
    call = {"const": {"name": "weather", "arguments": {"city": "Rome"}}}
    more = dict(model="tiny", messages=HI, temperature=0, max_tokens=200, tools=weather, tool_choice="auto",
                response_format={"type": "json_schema", "json_schema": {"name": "call", "schema": call}})
    r = client.chat.completions.create(**more).choices[0]
    calls = r.message.tool_calls or []
    check("a call of a tool", r.finish_reason == "tool_calls" and len(calls) == 1 and calls[0].function.name == "weather" and
          json.loads(calls[0].function.arguments) == {"city": "Rome"} and calls[0].id, r)
    parts = [c.choices[0] for c in client.chat.completions.create(**more, stream=True) if c.choices]
    streamed = [t for p in parts for t in p.delta.tool_calls or []]
    check("a call of a tool in a stream", "".join(t.function.arguments or "" for t in streamed) and streamed[0].function.name == "weather" and
          json.loads("".join(t.function.arguments or "" for t in streamed)) == {"city": "Rome"} and parts[-1].finish_reason == "tool_calls", parts)
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        for stream in (False, True):
            got = client.chat.completions.create(model="tiny", messages=HI, temperature=1, seed=3, max_tokens=400, stream=stream, tool_choice=choice, tools=[
                *weather, {"type": "function", "function": {"name": "time"}}] if choice == "required" else weather)
            if stream:
                made = "".join(t.function.arguments or "" for c in got if c.choices for t in c.choices[0].delta.tool_calls or [])
            else:
                made = got.choices[0].message.tool_calls[0].function.arguments
            check(f"tool_choice {choice}{' in a stream' if stream else ''}", isinstance(json.loads(made or "0"), dict), got)
    raises("a tool that is not there", openai.BadRequestError, "no tool 'other'", lambda: client.chat.completions.create(
        model="tiny", messages=HI, tools=weather, tool_choice={"type": "function", "function": {"name": "other"}}))
    back = HI + [r.message, {"role": "tool", "tool_call_id": calls[0].id if calls else "x", "content": "sunny"}]
    answer = client.chat.completions.create(model="tiny", messages=back, tools=weather, temperature=0, max_tokens=8)
    check("the tool's result goes back", answer.choices[0].message.role == "assistant", answer)


def embeddings(client):
    plain = client.embeddings.create(model="tiny", input=["Hello", "other"], encoding_format="float")
    usual = client.embeddings.create(model="tiny", input=["Hello", "other"])  # base64, which the client decodes
    check("embeddings", [d.index for d in usual.data] == [0, 1] and usual.usage.prompt_tokens == 10 and len(usual.data[0].embedding) == 32, usual)
    check("base64 is the same", all(max(abs(a - b) for a, b in zip(x.embedding, y.embedding)) < 1e-7 for x, y in zip(plain.data, usual.data)))
    check("length 1", abs(sum(v * v for v in usual.data[0].embedding) - 1) < 1e-5)
    check("dimensions", len(client.embeddings.create(model="tiny", input="Hello", dimensions=8).data[0].embedding) == 8)
    tokens = client.embeddings.create(model="tiny", input=[list(b"Hello"), list(b"other")])
    check("token ids", [d.embedding for d in tokens.data] == [d.embedding for d in usual.data])
    raises("an empty input", openai.BadRequestError, "empty", lambda: client.embeddings.create(model="tiny", input=""))
    raises("too many dimensions", openai.BadRequestError, "dimensions", lambda: client.embeddings.create(model="tiny", input="a", dimensions=99))
    raises("a text that is too long", openai.BadRequestError, "context", lambda: client.embeddings.create(model="tiny", input="a" * 999))


def errors(client):
    ask = client.chat.completions.create
    e = raises("another model", openai.NotFoundError, "other", lambda: ask(model="other", messages=HI))
    check("its code", e is not None and (e.code, e.param, e.type) == ("model_not_found", "model", "invalid_request_error"), e and e.body)
    e = raises("a value out of range", openai.BadRequestError, "temperature", lambda: ask(model="tiny", messages=HI, temperature=3))
    check("its parameter", e is not None and e.param == "temperature" and e.type == "invalid_request_error", e and e.body)
    check("its code", e is not None and e.code == "decimal_above_max_value", e and e.body)
    e = raises("an unknown field", openai.BadRequestError, "odd", lambda: ask(model="tiny", messages=HI, extra_body={"odd": 1}))
    check("its code", e is not None and e.code == "unknown_parameter", e and e.body)
    e = raises("a prompt that is too long", openai.BadRequestError, "context",
               lambda: ask(model="tiny", messages=[{"role": "user", "content": "a" * 999}]))
    check("its code", e is not None and (e.code, e.param) == ("context_length_exceeded", "messages"), e and e.body)
    raises("a stream that is refused", openai.BadRequestError, "context",
           lambda: list(ask(model="tiny", messages=[{"role": "user", "content": "a" * 999}], stream=True)))
    raises("no such path", openai.NotFoundError, "no such path", lambda: client.images.generate(prompt="x"))
    raises("a role that the template refuses", openai.BadRequestError, "unknown role", lambda: ask(model="tiny", messages=[{"role": "odd", "content": ""}]))
    check("the list of models", [m.id for m in client.models.list()] == ["tiny"] and client.models.retrieve("tiny").id == "tiny")


async def at_once(url):
    """Many requests of the asynchronous client, some of which are left."""
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
        async def ask(i):
            r = await client.completions.create(model="tiny", prompt=f"p{i % 5}", max_tokens=20, temperature=0, extra_body={"ignore_eos": True})
            return r.choices[0].text

        async def leave(i):
            stream = await client.completions.create(model="tiny", prompt=f"p{i}", max_tokens=300, temperature=0, stream=True,
                                                     extra_body={"ignore_eos": True})
            await anext(aiter(stream))
            await stream.close()

        alone = [await ask(i) for i in range(5)]
        made = await asyncio.gather(*(ask(i) if i % 3 else leave(i) for i in range(30)))
        check("many at once are as alone", all(made[i] == alone[i % 5] for i in range(30) if i % 3))


def main():
    with tempfile.TemporaryDirectory() as place:
        tiny = str(tiny_model.make(place + "/tiny"))
        with Server(tiny, "--slots", "3") as server, openai.OpenAI(base_url=server.url, api_key="x", max_retries=0, timeout=60) as client:
            for part in (chat, logprobs, completions, schemas, embeddings, errors):
                part(client)
            tools(client)
            asyncio.run(at_once(server.url))
        with Server(tiny, "--slots", "1", "--queue", "0", key="secret") as server:
            wrong, right = (openai.OpenAI(base_url=server.url, api_key=k, max_retries=0, timeout=60) for k in ("x", "secret"))
            e = raises("a wrong key", openai.AuthenticationError, "API key", lambda: wrong.models.list())
            check("its code", e is not None and (e.code, e.type) == ("invalid_api_key", "invalid_request_error"), e and e.body)
            running = right.completions.create(model="tiny", prompt="a", max_tokens=400, stream=True, extra_body={"ignore_eos": True, "logit_bias": {"66": 100}})
            next(iter(running))
            busy = raises("a server that is busy", openai.RateLimitError, "slots",
                          lambda: right.completions.create(model="tiny", prompt="b", max_tokens=400, extra_body={"ignore_eos": True}))
            check("it says when to come again", busy is not None and busy.response.headers.get("retry-after") == "1", busy)
            check("its code", busy is not None and busy.code == "rate_limit_exceeded", busy and busy.body)
            running.close()
    gone = openai.OpenAI(base_url=server.url, api_key="secret", max_retries=0)
    raises("a server that has gone", openai.APIConnectionError, "", lambda: gone.models.list())
    sys.exit(f"{len(failures)} failed" if failures else 0)


main()
