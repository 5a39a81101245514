// SPDX-License-Identifier: Apache-2.0
// A conversation with a language model, in an app of your own: text as it comes, one question after the other. What the
// model has read already is not read again.
//
//   chat MODEL [QUESTION...]    MODEL: a GGUF file or a folder; without questions, they are typed
#include <iostream>
#include <string>
#include <vector>

#include <tenon/llm.hpp>

namespace {

using namespace tenon::llm;

// Answers, and keeps both in the conversation.
void answer(Engine& engine, std::vector<Message>& messages, const std::string& question) {
  messages.push_back({"user", question});
  const Tokens prompt =
      engine.tokenize(engine.apply_chat_template(messages), {.add_special = false});
  std::string said;
  const GenerateOptions options{.max_tokens = 200, .temperature = 0.7, .top_p = 0.9, .seed = 1};
  engine.generate(prompt, options, [&](const Piece& piece) {
    std::cout << piece.text << std::flush;
    said += piece.text;
    return true;
  });
  std::cout << '\n';
  messages.push_back({"assistant", said});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: chat MODEL [QUESTION...]\n";
    return 2;
  }
  const tenon::Runtime runtime;
  Engine engine(runtime, argv[1]);
  std::vector<Message> messages;
  for (int i = 2; i < argc; ++i) answer(engine, messages, argv[i]);
  std::string question;
  while (argc == 2 && std::cout << "> " << std::flush && std::getline(std::cin, question))
    answer(engine, messages, question);
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
