// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: models, added tokens, what surrounds a text, and refusals.
#include <filesystem>
#include <fstream>

#include "llm/model_text.hpp"
#include "text_helpers.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

const std::string kBpe =
    R"({"type": "BPE", "vocab": {"h": 0, "e": 1, "l": 2, "o": 3, "he": 4, "ll": 5, "hell": 6, "Ġ": 7, "Ġhe": 8, "<|end|>": 9},
        "merges": ["h e", ["l", "l"], "he ll", "Ġ he"]})";
const std::string kByteLevel =
    R"(, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"})";

}  // namespace

TEST_SUITE("llm/text/json") {
  TEST_CASE("BPE: merges in order, pieces apart") {
    const auto t = from_json(with_model(kBpe, kByteLevel));
    CHECK(t.encode("hello", kPlain) == Ids{6, 3});
    CHECK(t.encode("hello hell he", kPlain) == Ids{6, 3, 7, 6, 8});  // he ll before Ġ he
    CHECK(t.encode("", kPlain).empty());
    CHECK(t.decode(Ids{6, 3, 8, 5}) == "hello hell");
    CHECK(t.size() == 10);
    CHECK(t.text(8) == "\xC4\xA0he");
    CHECK(t.find("hell") == 6);
    CHECK(t.find("hex") == std::nullopt);
  }

  TEST_CASE("BPE: ignore_merges keeps a piece that is a token") {
    const std::string model =
        R"({"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": ["b a"]})";
    CHECK(has(message([&] { from_json(with_model(model)); }),
              "model.merges[0]: expected a token of the vocabulary (not 'ba')"));
    const std::string sound =
        R"({"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": []})";
    CHECK(from_json(with_model(sound)).encode("aba", kPlain) == Ids{3});
    CHECK(from_json(with_model(sound)).encode("abab", kPlain) == Ids{0, 1, 0, 1});
  }

  TEST_CASE("BPE: unknown characters, alone and fused; bytes") {
    const auto ids = [](const std::string& options, const char* text) {
      return from_json(
                 with_model(
                     R"({"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "<0xC3>": 2, "<0xA4>": 3},
                                      "merges": [], "unk_token": "<unk>")" +
                     options + "}"))
          .encode(text, kPlain);
    };
    CHECK(ids("", "axya") == Ids{1, 0, 0, 1});
    CHECK(ids(R"(, "fuse_unk": true)", "axya") == Ids{1, 0, 1});
    CHECK(ids(R"(, "byte_fallback": true)", "\xC3\xA4x") == Ids{2, 3, 0});
  }

  TEST_CASE("BPE: prefixes and suffixes of parts of words") {
    const auto suffix = from_json(with_model(
        R"({"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 0, "b</w>": 1, "ab</w>": 2}, "merges": ["a b</w>"]})",
        R"(, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"})"));
    CHECK(suffix.encode("ab aab", kPlain) == Ids{2, 0, 2});
    CHECK(suffix.decode(Ids{2, 0, 2}) == "ab aab");
    const auto prefix = from_json(with_model(
        R"({"type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0, "##b": 1, "ab": 2}, "merges": ["a ##b"]})"));
    CHECK(prefix.encode("abb", kPlain) == Ids{2, 1});
  }

  TEST_CASE("Unigram: the best sum of scores, not the longest token") {
    const auto t = from_json(with_model(
        R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1], ["b", -1], ["ab", -3], ["abc", -4], ["c", -1.5]]})"));
    CHECK(t.encode("ab", kPlain) == Ids{1, 2});       // -2 > -3
    CHECK(t.encode("abc", kPlain) == Ids{1, 2, 5});   // -3.5 > -4
    CHECK(t.encode("xyab", kPlain) == Ids{0, 1, 2});  // unknown neighbours are one
    CHECK(t.unk() == 0);
  }

  TEST_CASE("WordPiece: the longest part; a word with an unknown part is unknown") {
    const auto t = from_json(with_model(
        R"({"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 6,
            "vocab": {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "##a": 4, "unaff": 5}})",
        R"(, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece"})"));
    CHECK(t.encode("unaff una", kPlain) == Ids{5, 1, 4});
    CHECK(t.encode("unaffx", kPlain) == Ids{0});
    CHECK(t.encode("unaffaa", kPlain) == Ids{0});  // seven characters
    CHECK(t.decode(Ids{1, 4, 5}) == "una unaff");
  }

  TEST_CASE("WordLevel: whole pieces") {
    const auto t = from_json(with_model(
        R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "one": 1, "two": 2}})",
        R"(, "pre_tokenizer": {"type": "Whitespace"})"));
    CHECK(t.encode("two  one! two", kPlain) == Ids{2, 1, 0, 2});
    CHECK(t.decode(Ids{2, 1}) == "two one");
  }

  TEST_CASE("added tokens: special ones only if asked for") {
    const auto t = from_json(with_model(kBpe, kByteLevel + R"(, "added_tokens": [
        {"id": 9, "content": "<|end|>", "special": true}, {"id": 10, "content": "lo", "special": false, "normalized": false}])"));
    CHECK(t.encode("he<|end|>", {.add_special = false, .parse_special = true}) == Ids{4, 9});
    CHECK(t.encode("helo", kPlain) == Ids{4, 10});
    CHECK(t.encode("he<|end|>", kPlain) == Ids{4, 1});  // '<', '|', 'n', 'd' and '>' are no tokens
    CHECK(t.decode(Ids{4, 9, 10}) == "he<|end|>lo");
    CHECK(t.decode(Ids{4, 9, 10}, true) == "helo");
    CHECK(t.is_special(9));
    CHECK_FALSE(t.is_special(10));
    CHECK(t.size() == 11);
  }

  TEST_CASE("added tokens: the longest, with spaces, as single words") {
    const std::string model = R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}})";
    const auto ids = [&](const std::string& added, const char* text) {
      return from_json(with_model(model, R"(, "added_tokens": [)" + added + "]")).encode(text);
    };
    CHECK(ids(R"({"id": 1, "content": "ab"}, {"id": 2, "content": "abc"})", "abcab") == Ids{2, 1});
    CHECK(ids(R"({"id": 1, "content": "m", "lstrip": true, "rstrip": true})", "  m  ") == Ids{1});
    CHECK(ids(R"({"id": 1, "content": "m", "rstrip": true})", " m ") == Ids{0, 1});
    CHECK(ids(R"({"id": 1, "content": "m", "single_word": true})", "am") == Ids{0});
    CHECK(ids(R"({"id": 1, "content": "m", "single_word": true})", "-m-") == Ids{0, 1, 0});
  }

  TEST_CASE("post-processors: what surrounds a text") {
    const std::string model = R"({"type": "WordLevel", "vocab": {"x": 0, "<s>": 1, "</s>": 2}})";
    const auto ids = [&](const std::string& processor) {
      return from_json(with_model(model, R"(, "post_processor": )" + processor)).encode("x");
    };
    const std::string one =
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                            "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 1], "tokens": ["<s>"]}}})";
    CHECK(ids(one) == Ids{1, 1, 0});
    CHECK(ids(R"({"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]})") ==
          Ids{1, 0, 2});
    CHECK(
        ids(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},)" +
            one + "]}") == Ids{1, 1, 1, 0, 2});
  }

  TEST_CASE("roles: from tokenizer_config.json") {
    const auto t = from_json(
        with_model(
            kBpe,
            kByteLevel +
                R"(, "added_tokens": [{"id": 9, "content": "<|end|>", "special": true}, {"id": 10, "content": "<|eot_id|>", "special": true}])"),
        R"({"bos_token": null, "eos_token": {"content": "<|end|>"}, "pad_token": "<|end|>"})");
    CHECK(t.bos() == std::nullopt);
    CHECK(t.eos() == 9);
    CHECK(t.eot() == 10);
    CHECK(t.pad() == 9);
    CHECK(Ids(t.ends().begin(), t.ends().end()) == Ids{9, 10});
    CHECK_FALSE(t.adds_bos());
  }

  TEST_CASE("folders: tokenizer.json, and beside it tokenizer_config.json or nothing") {
    namespace fs = std::filesystem;
    std::string path = (fs::temp_directory_path() / "tenon-tokenizer-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    const auto write = [&](const char* name, const std::string& text) {
      std::ofstream(fs::path(path) / name) << text;
    };
    CHECK(has(message([&] { llm::ModelText::read(path); }), "a folder with config.json"));
    write("config.json", "{}");
    CHECK(has(message([&] { llm::ModelText::read(path); }), "/tokenizer.json: no such file"));
    write("tokenizer.json", with_model(kBpe, kByteLevel));
    CHECK(llm::ModelText::read(path).end_ids().empty());
    write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
    CHECK(llm::ModelText::read(path).tokenizer().eos() == 9);
    CHECK(llm::ModelText::read(path).end_ids() == std::vector<int64_t>{9});
    write("tokenizer_config.json", "[]");
    CHECK(has(message([&] { llm::ModelText::read(path); }), "expected a JSON object"));
    fs::remove(fs::path(path) / "tokenizer.json");
    fs::create_directory(fs::path(path) / "tokenizer.json");
    CHECK(has(message([&] { llm::ModelText::read(path); }), "expected a regular file"));
    fs::remove_all(path);
  }

  TEST_CASE("refusals: name what is wrong") {
    const auto error = [](const std::string& json) { return message([&] { from_json(json); }); };
    const std::string words = R"({"type": "WordLevel", "vocab": {"x": 0}})";
    CHECK(has(error("{"), "tokenizer.json: no JSON"));
    CHECK(has(error("[]"), "expected a JSON object"));
    CHECK(has(error("{}"), "tokenizer.json.model: expected an object, got nothing"));
    CHECK(has(error(with_model(R"({"type": "Magic"})")), "tokenizer.json.model.type is \"Magic\""));
    CHECK(
        has(error(with_model(R"({"type": "WordLevel", "vocab": {"x": 0, "y": 0}})")), "same id 0"));
    CHECK(has(error(with_model(R"({"type": "WordLevel", "vocab": {"x": 4000000000}})")),
              "['x']: expected an id"));
    CHECK(has(error(with_model(R"({"type": "WordLevel", "vocab": {"x": -1}})")), "expected an id"));
    CHECK(has(error(with_model(R"({"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []})")),
              "model.dropout is 0.1"));
    CHECK(has(error(with_model(words, R"(, "normalizer": {"type": "Upper"})")),
              "normalizer.type is \"Upper\""));
    CHECK(
        has(error(with_model(
                words,
                R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Cut"}]})")),
            "pre_tokenizer.pretokenizers[0].type is \"Cut\""));
    CHECK(has(error(with_model(words, R"(, "decoder": {"type": "CTC"})")),
              "decoder.type is \"CTC\""));
    CHECK(has(
        error(with_model(
            words,
            R"(, "post_processor": {"type": "BertProcessing", "sep": ["y", 7], "cls": ["x", 0]})")),
        "post_processor.sep[1]: expected the id of a token, got 7"));
    CHECK(
        has(error(with_model(words, R"(, "added_tokens": [{"id": 2147483648, "content": "far"}])")),
            "id of 'far': expected an id from 0 to"));
    CHECK(has(error(with_model(words, R"(, "added_tokens": [{"id": 0, "content": "z"}])")),
              "added_tokens[0]"));
    std::string deep = R"({"type": "NFC"})";
    for (int i = 0; i < 40; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
    CHECK(has(error(with_model(words, R"(, "normalizer": )" + deep)), "nested too deep"));
  }

  TEST_CASE("growth: stages that multiply the text are refused") {
    std::string stages;
    for (int i = 0; i < 40; ++i)
      stages += R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},)";
    stages.pop_back();
    const auto t = from_json(
        with_model(R"({"type": "WordLevel", "vocab": {"x": 0}})",
                   R"(, "normalizer": {"type": "Sequence", "normalizers": [)" + stages + "]}"));
    CHECK(
        has(message([&] { t.encode("a"); }), "a text of 1 bytes grows to more than 1048640 bytes"));
    CHECK(t.encode("x", kPlain) == Ids{0});
  }

  TEST_CASE("ids: those that no token has are errors") {
    const auto t = from_json(with_model(R"({"type": "WordLevel", "vocab": {"x": 0, "y": 2}})"));
    CHECK(has(message([&] { t.decode(Ids{1}); }), "no token with the id 1"));
    CHECK(has(message([&] { t.decode(Ids{-1}); }), "no token with the id -1"));
    CHECK(has(message([&] { t.text(3); }), "expected an id below 3"));
    CHECK_FALSE(t.has(1));
  }
}
