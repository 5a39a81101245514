// SPDX-License-Identifier: Apache-2.0
// tenon llm serve: an HTTP server that speaks the OpenAI protocol.
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/command.hpp"
#include "cli/input.hpp"
#include "cli/interrupt.hpp"
#include "cli/llm/options.hpp"
#include "llm/serve/api.hpp"
#include "llm/serve/engine_served.hpp"

namespace tenon::cli {
namespace {

using std::chrono::milliseconds;

const std::vector<Option>& serve_options() {
  static const std::vector<Option> options = with_engine_options({
      {.name = "--host",
       .value = "ADDRESS",
       .help = "address to listen on; 0.0.0.0 is every address of this machine",
       .otherwise = "127.0.0.1"},
      {.name = "--port",
       .value = "N",
       .help = "port to listen on; 0 is any free one",
       .otherwise = "8080"},
      {.name = "--api-key-file",
       .value = "FILE",
       .help = "requests must carry the key in FILE as a bearer token [TENON_API_KEY, else none]",
       .completes = Completes::file},
      {.name = "--name",
       .value = "TEXT",
       .help = "name of the model for clients",
       .otherwise = "the last part of MODEL"},
      {.name = "--pooling",
       .value = "KIND",
       .help = "embedding of a text: the mean over its tokens, or its first or last token",
       .otherwise = "as the model's files say, else mean",
       .choices = {"mean", "cls", "last"}},
      {.name = "--slots",
       .value = "N",
       .help = "most requests that are answered at the same time",
       .otherwise = "4"},
      {.name = "--cache-tokens",
       .value = "N",
       .help = "tokens that the cache of keys and values has room for, of all slots together, in "
               "blocks "
               "of 96; requests that find no room wait",
       .otherwise = "--slots times --context"},
      {.name = "--queue",
       .value = "N",
       .help = "most requests that wait; more are refused with status 429",
       .otherwise = "64"},
      {.name = "--chunk",
       .value = "N",
       .help = "tokens of prompts that are read between two tokens of other answers",
       .otherwise = "128 on the cpu, else 512"},
      {.name = "--connections",
       .value = "N",
       .help = "most connections; more are refused with status 503",
       .otherwise = "256"},
      {.name = "--body-limit", .value = "MIB", .help = "largest request", .otherwise = "4"},
      {.name = "--drain",
       .value = "SECONDS",
       .help = "time that running requests get to end after Ctrl-C or SIGTERM",
       .otherwise = "30"},
  });
  return options;
}

std::string key_of(const Args& args) {
  if (args.has("--api-key-file")) {
    std::string key = read_input(args.text("--api-key-file"));
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
    if (key.empty()) throw UsageError("--api-key-file: the file is empty");
    return key;
  }
  const char* key = std::getenv("TENON_API_KEY");
  return key ? key : "";
}

std::string name_of(const Args& args) {
  if (args.has("--name")) {
    if (args.text("--name").empty()) throw UsageError("--name: expected a text, got none");
    return args.text("--name");
  }
  std::filesystem::path path = std::filesystem::absolute(model_of(args)).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return (path.extension() == ".gguf" ? path.stem() : path.filename()).string();
}

int serve(const Args& args) {
  const std::string& model = model_of(args);
  namespace s = llm::serve;
  s::HttpLimits limits;
  limits.connections = static_cast<size_t>(args.integer("--connections", 256, 1, 65536));
  limits.body_bytes = static_cast<size_t>(args.integer("--body-limit", 4, 1, 4096)) << 20;
  s::SchedulerLimits waiting{
      .waiting = args.integer("--queue", 64, 0, 1 << 20),
      .threads = static_cast<unsigned>(args.integer("--threads", 0, 0, 4096))};
  const int64_t chunk = args.integer("--chunk", 0, 1, 1 << 20);
  const milliseconds drain(1000 * args.integer("--drain", 30, 0, 86'400));
  const auto port = static_cast<uint16_t>(args.integer("--port", 8080, 0, 65535));
  const std::string host = args.text("--host", "127.0.0.1"), key = key_of(args),
                    name = name_of(args);
  ignore_closed_pipes();
  const InterruptFlag interrupt(Finishes::answers);
  // A port that is taken is told before the model is loaded. Clients that come meanwhile wait.
  std::unique_ptr<s::Api> api;
  s::HttpServer server(host, port, limits,
                       {.admit = [&](const s::HttpRequest& head,
                                     s::HttpReply& reply) { return api->admit(head, reply); },
                        .answer = [&](const s::HttpRequest& request,
                                      s::HttpReply& reply) { api->answer(request, reply); },
                        .refuse =
                            [](unsigned status, const std::string& why) {
                              return s::dumped(s::error_json({status, why}));
                            }});
  const Runtime& runtime = open_runtime(args);
  llm::ModelText text = llm::ModelText::read(model);
  llm::EngineOptions options = engine_options(args, args.integer("--slots", 4, 1, 1024));
  options.cache_tokens = args.integer("--cache-tokens", 0, 2, int64_t{1} << 40);
  llm::Engine engine(runtime, model, options);
  waiting.chunk = chunk > 0 ? chunk : engine.longest_step() / 4;
  s::EngineServed served(name, std::move(engine), std::move(text), waiting,
                         llm::pooling_of_name(args.text("--pooling")));
  api = std::make_unique<s::Api>(served, key);
  std::cerr << "tenon: " << served.name() << " on http://"
            << (host.find(':') == std::string::npos ? host : "[" + host + "]") << ":"
            << server.port() << (key.empty() ? "" : ", with an API key") << "\n"
            << std::flush;
  if (server.run([&] { return interrupt.raised(); }, drain) > 0) {
    std::cerr << "tenon: the time of --drain is over; stops the answers that still run\n";
    served.stop("the server is stopping");
    // They see it at their next token. A connection that hangs in a write would use what is
    // destroyed below.
    if (server.run([] { return true; }, milliseconds(10'000)) > 0) std::_Exit(0);
  }
  return 0;
}

}  // namespace

Command llm_serve_command() {
  return {
      .name = "llm serve",
      .summary = "serve a language model by the OpenAI protocol",
      .usage = "MODEL [options]",
      .options = serve_options(),
      .examples =
          "tenon llm serve Llama-3.2-1B-Instruct --port 8080\n"
          "curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
          "  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n",
      .words = 1,
      .completes = Completes::file,
      .run = serve};
}

}  // namespace tenon::cli
