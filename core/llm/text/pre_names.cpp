// SPDX-License-Identifier: Apache-2.0
// The expressions are those of the tokenizer.json files of these models.
#include "llm/text/pre_names.hpp"

#include <algorithm>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

using Patterns = std::string_view;

#define TENON_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TENON_LINES_AND_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TENON_WORDS R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define TENON_SYMBOLS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define TENON_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TENON_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
// Words that change from capital letters to small ones at most once.
#define TENON_CASED(suffix)                                      \
  R"([^\r\n\p{L}\p{N}]?)" TENON_UPPER "*" TENON_LOWER "+" suffix \
  R"(|[^\r\n\p{L}\p{N}]?)" TENON_UPPER "+" TENON_LOWER "*" suffix
#define TENON_CASED_SYMBOLS R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
#define TENON_GPT2 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define TENON_PUNCTUATED \
  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"

constexpr Patterns kGpt2[] = {TENON_GPT2};
constexpr Patterns kDigits[] = {R"(\p{N})", TENON_GPT2};
constexpr Patterns kLlama3[] = {
    TENON_CONTRACTION "|" TENON_WORDS R"(|\p{N}{1,3})" TENON_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kQwen2[] = {TENON_CONTRACTION "|" TENON_WORDS
                                                 R"(|\p{N})" TENON_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kQwen35[] = {
    TENON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" TENON_LINES_AND_SPACES};
constexpr Patterns kJais2[] = {
    TENON_CONTRACTION
    "|" TENON_WORDS R"(|\p{N}{1,3})" TENON_SYMBOLS
    R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"};
// The letters of the scripts of Europe; a run of spaces at the end of the text.
constexpr Patterns kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"
    R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})"
    R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})"
    R"(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    R"(]+)",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    R"((?<!\s)\s+\z)",
    "[一-龥ࠀ-一가-퟿]+",
    R"(\p{N}+)"};
constexpr Patterns kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                       "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"};
constexpr Patterns kDeepseek3[] = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
                                   TENON_PUNCTUATED TENON_LINES_AND_SPACES};
constexpr Patterns kFalcon[] = {R"([\p{P}\$\+<=>\^~\|`]+)", TENON_GPT2, "[0-9][0-9][0-9]"};
constexpr Patterns kDefault[] = {R"([\p{P}\$\+<=>\^~\|]+)", TENON_GPT2, R"(\p{N}+)",
                                 "[0-9][0-9][0-9]"};
constexpr Patterns kBloom[] = {" ?[^(\\s|.,!?…。，、।۔،)]+"};
constexpr Patterns kViking[] = {" ?[^(\\s|.,!?…。，、।۔،)]+", R"(\p{N})"};
constexpr Patterns kTekken[] = {
    TENON_CASED("") R"(|\p{N})" TENON_CASED_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kGpt4o[] = {
    TENON_CASED(TENON_CONTRACTION "?") R"(|\p{N}{1,3})" TENON_CASED_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kTinyAya[] = {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o[0]};
constexpr Patterns kYoutu[] = {
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
    "ゟ゠-"
    "ヿ]"
    "+",
    TENON_CASED(TENON_CONTRACTION "?") R"(|\p{N})" TENON_CASED_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kSuperbpe[] = {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"};
constexpr Patterns kBailing[] = {R"('(?i:[sdmt]|ll|ve|re)|)" TENON_WORDS R"(|\p{N})" TENON_SYMBOLS
                                 R"(|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Patterns kSeedCoder[] = {
    TENON_CONTRACTION "|" TENON_WORDS R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" TENON_LINES_AND_SPACES};
constexpr Patterns kExaoneMoe[] = {
    TENON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Patterns kMinicpm5[] = {R"(\p{N}{1,3})", TENON_CONTRACTION
                                  "|" TENON_WORDS
                                  R"(|\p{N}+)" TENON_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kChameleon[] = {"<sentinel:[0-9]+>",       "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                   R"(([\t\n]|    |  ))",     R"(\p{N})",
                                   R"([\p{P}!-/:-@\[-`{-~])", TENON_GPT2};
// Chinese characters apart from other letters.
#define TENON_NOT_HAN_UPPER R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))"
#define TENON_NOT_HAN_LOWER R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))"
constexpr Patterns kKimi[] = {
    R"(\p{Han}+|[^\r\n\p{L}\p{N}]?)" TENON_NOT_HAN_UPPER "*" TENON_NOT_HAN_LOWER
    "+" TENON_CONTRACTION R"(?|[^\r\n\p{L}\p{N}]?)" TENON_NOT_HAN_UPPER "+" TENON_NOT_HAN_LOWER
    "*" TENON_CONTRACTION R"(?|\p{N}{1,3})" TENON_SYMBOLS TENON_LINES_AND_SPACES};
constexpr Patterns kLines[] = {R"([^\n]+|[\n]+)"};

struct Entry {
  std::string_view names;  // with a space around each
  NamedPreTokenizer is;
};

constexpr Entry kEntries[] = {
    {" default ", {.patterns = kDefault}},
    {" gpt-2 gpt2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
     "mpt olmo jais trillion "
     "granite-docling exaone4 ",
     {.patterns = kGpt2}},
    {" jina-v1-en jina-v2-code roberta-bpe ", {.patterns = kGpt2, .separator = true}},
    {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {.patterns = kLlama3, .ignore_merges = true, .bos = true}},
    {" dbrx smaug-bpe chatglm-bpe ", {.patterns = kLlama3}},
    {" glm4 glm5 ", {.patterns = kLlama3, .ignore_merges = true}},
    {" qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2 ",
     {.patterns = kQwen2}},
    {" qwen35 ", {.patterns = kQwen35}},
    {" jais-2 ", {.patterns = kJais2}},
    {" deepseek-llm ", {.patterns = kDeepseekLlm}},
    {" deepseek-coder ", {.patterns = kDeepseekCoder}},
    {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", {.patterns = kDeepseek3}},
    {" falcon ", {.patterns = kFalcon}},
    {" starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     {.patterns = kDigits}},
    {" bloom poro-chat gpt3-finnish ", {.patterns = kBloom}},
    {" viking ", {.patterns = kViking}},
    {" tekken ", {.patterns = kTekken, .ignore_merges = true, .bos = true}},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {.patterns = kGpt4o}},
    {" tiny_aya cohere2moe ", {.patterns = kTinyAya}},
    {" youtu ", {.patterns = kYoutu, .ignore_merges = true}},
    {" superbpe ", {.patterns = kSuperbpe}},
    {" bailingmoe bailingmoe2 llada-moe ", {.patterns = kBailing}},
    {" seed-coder ", {.patterns = kSeedCoder}},
    {" exaone-moe ", {.patterns = kExaoneMoe}},
    {" minicpm5 ", {.patterns = kMinicpm5, .ignore_merges = true}},
    {" chameleon ", {.patterns = kChameleon, .bos = true}},
    {" kimi-k2 ", {.patterns = kKimi}},
    {" gemma4 granite-embed-multi-311m sarvam-moe ", {.patterns = kLines, .raw = true}},
};

}  // namespace

std::string_view pre_tokenizer_name(std::span<const std::string> patterns) {
  for (const Entry& e : kEntries)
    if (!e.is.raw && std::ranges::equal(e.is.patterns, patterns))
      return e.names.substr(1, e.names.find(' ', 1) - 1);
  return {};
}

const NamedPreTokenizer& named_pre_tokenizer(std::string_view name, const std::string& file) {
  const std::string spaced = ' ' + std::string(name) + ' ';
  if (!name.empty() && name.find(' ') == name.npos)
    for (const Entry& e : kEntries)
      if (e.names.find(spaced) != e.names.npos) return e.is;
  std::string known;
  for (const Entry& e : kEntries) known += e.names.substr(1);
  known.pop_back();
  throw Error(TENON_UNSUPPORTED, file + ": tokenizer.ggml.pre is '" + std::string(name) +
                                     "', which tenon does not know; expected one of: " + known);
}

}  // namespace tenon::llm
