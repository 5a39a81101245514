// SPDX-License-Identifier: Apache-2.0
// Tokenizers from the metadata of GGUF files.
#include "text_helpers.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

llm::Tokenizer load(const MapMetadata& m) { return llm::Tokenizer::from_metadata(m, "model.gguf"); }

MapMetadata metadata(const std::string& model, std::vector<std::string> tokens) {
  MapMetadata m;
  m.texts_["tokenizer.ggml.model"] = model;
  m.text_lists["tokenizer.ggml.tokens"] = std::move(tokens);
  return m;
}

MapMetadata llama() {
  auto m = metadata("llama", {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA4>", "▁", "a", "b", "▁a", "ab",
                              "▁ab", "<x>"});
  m.float_lists["tokenizer.ggml.scores"] = {0, 0, 0, 0, 0, -9, -8, -7, -2, -1, -3, 0};
  m.integer_lists["tokenizer.ggml.token_type"] = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 4};
  return m;
}

}  // namespace

TEST_SUITE("llm/text/gguf") {
  TEST_CASE("llama: scores decide, bytes stand for unknown characters") {
    const auto t = load(llama());
    CHECK(t.encode("ab", kPlain) == Ids{10});
    CHECK(t.encode("ab") == Ids{1, 10});
    CHECK(t.encode("a ab", kPlain) == Ids{8, 10});
    CHECK(t.encode(" ab", kPlain) == Ids{5, 10});  // a space more than the text has
    CHECK(t.encode("ä", kPlain) == Ids{5, 3, 4});
    CHECK(t.encode("ab<x>ab", kPlain) == Ids{10, 11, 10});  // each text between tokens gets a space
    CHECK(t.decode(Ids{1, 10, 8, 3, 4}, true) == "ab aä");
    CHECK(t.bos() == 1);
    CHECK(t.eos() == 2);
    CHECK(t.unk() == 0);
    CHECK(t.adds_bos());
  }

  TEST_CASE("llama: keys turn the space and the surrounding tokens off and on") {
    auto m = llama();
    m.integers_["tokenizer.ggml.add_space_prefix"] = 0;
    m.integers_["tokenizer.ggml.add_bos_token"] = 0;
    m.integers_["tokenizer.ggml.add_eos_token"] = 1;
    const auto t = load(m);
    CHECK(t.encode("ab ab") == Ids{9, 10, 2});
    CHECK(t.decode(Ids{10}) == " ab");
  }

  TEST_CASE("special tokens: text unless they are parsed") {
    const auto t = load(llama());
    CHECK(t.encode("</s>ab", {.add_special = false, .parse_special = true}) == Ids{2, 10});
    // None of '<', '/', 's' and '>' is a token: their bytes are missing too.
    CHECK(t.encode("</s>", kPlain) == Ids{5, 0, 0, 0, 0});
  }

  TEST_CASE("gpt2: merges, visible bytes and the named pre-tokenizer") {
    auto m =
        metadata("gpt2", {"a", "b", "Ġ", "Ġa", "1", "2", "12", "ab", "123", "3", "<|im_end|>"});
    m.text_lists["tokenizer.ggml.merges"] = {"Ġ a", "1 2", "a b", "12 3"};
    m.integer_lists["tokenizer.ggml.token_type"] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    m.integers_["tokenizer.ggml.eos_token_id"] = 0;
    m.integers_["tokenizer.ggml.bos_token_id"] = 1;
    const auto ids = [&](const char* pre, const char* text) {
      m.texts_["tokenizer.ggml.pre"] = pre;
      return load(m).encode(text, kPlain);
    };
    CHECK(ids("gpt-2", "ab a123") == Ids{7, 3, 8});
    CHECK(ids("qwen2", "a123") == Ids{0, 4, 5, 9});    // digits alone
    CHECK(ids("llama-bpe", "a1231") == Ids{0, 8, 4});  // three digits at most
    CHECK(ids("starcoder", "a12") == Ids{0, 4, 5});
    m.texts_["tokenizer.ggml.pre"] = "llama-bpe";
    const auto t = load(m);
    CHECK(t.eot() == 10);
    CHECK(t.encode("a") == Ids{1, 0});  // llama 3 adds bos unless the file says no
    CHECK(Ids(t.ends().begin(), t.ends().end()) == Ids{0, 10});
    CHECK(t.decode(Ids{7, 3}) == "ab a");
  }

  TEST_CASE("t5: sums of scores, runs of spaces become one") {
    auto m = metadata("t5", {"<pad>", "</s>", "<unk>", "▁", "a", "▁a", "b"});
    m.float_lists["tokenizer.ggml.scores"] = {0, 0, 0, -2, -2, -3, -2};
    m.integer_lists["tokenizer.ggml.token_type"] = {3, 3, 2, 1, 1, 1, 1};
    m.integers_["tokenizer.ggml.remove_extra_whitespaces"] = 1;
    const auto t = load(m);
    CHECK(t.encode("a  ab ") == Ids{5, 5, 6, 1});
    CHECK(t.encode("xy", kPlain) == Ids{3, 2});
    CHECK(t.decode(Ids{5, 5, 6}) == "a ab");
  }

  TEST_CASE("bert: words begin with a visible space in the file") {
    auto m = metadata("bert", {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "▁he", "llo", "▁,"});
    m.integer_lists["tokenizer.ggml.token_type"] = {3, 3, 3, 3, 1, 1, 1, 1};
    m.integers_["tokenizer.ggml.unknown_token_id"] = 1;
    m.integers_["tokenizer.ggml.cls_token_id"] = 2;
    m.integers_["tokenizer.ggml.seperator_token_id"] = 3;
    const auto t = load(m);
    CHECK(t.encode("HÉLLO,hello hex") == Ids{2, 4, 7, 4, 1, 3});
    CHECK(t.decode(Ids{5, 6, 7, 4}) == "hello, hello");
    // Cases may count, and accents with or without them.
    m.integers_["tokenizer.ggml.normalizer.lowercase"] = 0;
    CHECK(load(m).encode("Hello hello h\u00e9llo") == Ids{2, 1, 4, 1, 3});
    m.integers_["tokenizer.ggml.normalizer.strip_accents"] = 1;
    CHECK(load(m).encode("Hello hello h\u00e9llo") == Ids{2, 1, 4, 4, 3});
  }

  TEST_CASE("gemma4: lines, and bytes of unknown characters") {
    auto m = metadata("gemma4", {"<pad>", "a", "▁", "▁a", "\n\n", "<0xC3>", "<0xA4>", "<bos>"});
    m.text_lists["tokenizer.ggml.merges"] = {"▁ a"};
    m.integer_lists["tokenizer.ggml.token_type"] = {3, 1, 1, 1, 1, 6, 6, 3};
    m.integers_["tokenizer.ggml.bos_token_id"] = 7;
    m.integers_["tokenizer.ggml.add_bos_token"] = 1;
    const auto t = load(m);
    CHECK(t.encode("a a\n\nä") == Ids{7, 1, 3, 4, 5, 6});
    CHECK(t.decode(Ids{1, 3, 4, 5, 6}) == "a a\n\nä");
  }

  TEST_CASE("refusals: name the key and what was expected") {
    const auto error = [](const MapMetadata& m) { return message([&] { load(m); }); };
    CHECK(has(error({}), "model.gguf: the key tokenizer.ggml.model is missing"));
    CHECK(has(error(metadata("rwkv", {"a"})), "tokenizer.ggml.model is 'rwkv'"));
    auto m = metadata("gpt2", {"a", "b"});
    m.texts_["tokenizer.ggml.pre"] = "no-such";
    CHECK(has(error(m), "tokenizer.ggml.pre is 'no-such', which tenon does not know"));
    CHECK(has(error(m), "llama-bpe"));
    m.texts_["tokenizer.ggml.pre"] = "gpt-2";
    CHECK(has(error(m), "tokenizer.ggml.merges is missing"));
    m.text_lists["tokenizer.ggml.merges"] = {"ab"};
    CHECK(has(error(m), "merge 0 is 'ab'; expected two tokens"));
    m = llama();
    m.float_lists["tokenizer.ggml.scores"].pop_back();
    CHECK(has(error(m),
              "tokenizer.ggml.scores has 11 elements; expected one for each of the 12 tokens"));
    m = llama();
    m.float_lists["tokenizer.ggml.scores"][4] = INFINITY;
    CHECK(has(error(m), "the score of token 4 is not finite"));
    m = llama();
    m.integer_lists["tokenizer.ggml.token_type"].clear();
    CHECK(has(error(m), "tokenizer.ggml.token_type has 0 elements"));
    m = metadata("t5", {"a"});
    m.float_lists["tokenizer.ggml.scores"] = {0};
    m.integer_lists["tokenizer.ggml.precompiled_charsmap"] = {255, 255, 255, 255, 0};
    CHECK(has(error(m), "precompiled_charsmap: the array"));
  }
}
