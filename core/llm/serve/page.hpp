// SPDX-License-Identifier: Apache-2.0
// The page that the server shows in a browser: a chat with the model. It loads nothing from
// elsewhere.
#pragma once

#include <string_view>

namespace tenon::llm::serve {

inline constexpr std::string_view kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>tenon</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem;
       display: flex; flex-direction: column; height: 100vh; box-sizing: border-box; }
header { display: flex; gap: 1rem; align-items: baseline; }
header h1 { font-size: 1.1rem; margin: 0; flex: 1; }
#log { flex: 1; overflow-y: auto; padding: .5rem 0; }
.message { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; padding: .5rem .8rem;
           border-radius: .6rem; }
.user { background: #8883; margin-left: 4rem; }
.error { color: #c33; }
form { display: flex; gap: .5rem; }
textarea { flex: 1; font: inherit; padding: .5rem; resize: vertical; }
button { font: inherit; padding: .3rem .8rem; }
small { opacity: .7; }
</style></head><body>
<header><h1 id="name">tenon</h1><small id="speed"></small>
<button id="clear" type="button">New chat</button></header>
<div id="log" aria-live="polite"></div>
<form id="form"><textarea id="text" rows="2" placeholder="Message (Enter sends)" autofocus></textarea>
<button id="send">Send</button></form>
<script>
"use strict";
const get = id => document.getElementById(id);
let messages = [], running = null, model = "";
let key = sessionStorage.getItem("key") || "";
const headers = () => ({"Content-Type": "application/json",
                        ...(key ? {"Authorization": "Bearer " + key} : {})});
function show(role, text) {
  const d = document.createElement("div");
  d.className = "message " + role;
  d.textContent = text;
  get("log").append(d);
  d.scrollIntoView();
  return d;
}
async function askKey() {
  key = prompt("API key") || "";
  sessionStorage.setItem("key", key);
}
async function start() {
  let r = await fetch("v1/models", {headers: headers()});
  if (r.status === 401) { await askKey(); r = await fetch("v1/models", {headers: headers()}); }
  if (r.ok) { model = (await r.json()).data[0].id; get("name").textContent = model; }
}
async function send(text) {
  const mine = messages;  // "New chat" starts another list
  mine.push({role: "user", content: text});
  show("user", text);
  const box = show("assistant", "");
  let answer = "", pieces = 0;
  const began = performance.now();
  running = new AbortController();
  get("send").textContent = "Stop";
  try {
    const r = await fetch("v1/chat/completions", {method: "POST", headers: headers(),
      signal: running.signal, body: JSON.stringify({model, messages: mine, stream: true})});
    if (!r.ok) throw new Error((await r.json()).error.message);
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) break;
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const e of events) {
        const data = e.replace(/^data: /, "");
        if (data === "[DONE]") continue;
        const json = JSON.parse(data);
        if (json.error) throw new Error(json.error.message);
        const delta = json.choices[0] && json.choices[0].delta.content;
        if (delta) { answer += delta; ++pieces; box.textContent = answer; box.scrollIntoView(false); }
      }
      const seconds = (performance.now() - began) / 1000;
      get("speed").textContent = pieces + " pieces, " + (pieces / seconds).toFixed(1) + "/s";
    }
  } catch (e) {
    if (e.name !== "AbortError") show("error", e.message);
  }
  running = null;
  get("send").textContent = "Send";
  mine.push({role: "assistant", content: answer});
}
get("form").addEventListener("submit", e => {
  e.preventDefault();
  if (running) { running.abort(); return; }
  const text = get("text").value.trim();
  if (text) { get("text").value = ""; send(text); }
});
get("text").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    get("form").requestSubmit();
  }
});
get("clear").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  get("log").replaceChildren();
});
start();
</script></body></html>
)html";

}  // namespace tenon::llm::serve
