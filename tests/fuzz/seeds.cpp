// SPDX-License-Identifier: Apache-2.0
// fuzz_seeds FOLDER: the seeds that are no text: blobs for blob_bytes, files for
// plugin_manifest and gguf.
#include <elf.h>
#include <tenon/manifest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "../abi/blob_builder.hpp"
#include "../unit/import/gguf_bytes.hpp"
#include "llm/files/config_keys.hpp"
#include "llm/model_folder.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tenon::test;

void write(const fs::path& file, const void* bytes, size_t size) {
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!out.flush()) throw std::runtime_error(file.string() + ": write failed");
}
void write(const fs::path& file, const std::vector<uint64_t>& words) {
  write(file, words.data(), words.size() * 8);
}

std::vector<uint64_t> one_node() {
  BlobBuilder b;
  const uint32_t x = b.input({TENON_DTYPE_F32, {2, 3}});
  b.output(b.node("reduce", {x}, {{TENON_DTYPE_F32, {3}}},
                  {{"kind", std::string("sum")}, {"axes", std::vector<int64_t>{0}}}));
  return b.bytes();
}

std::vector<uint64_t> every_attribute() {
  BlobBuilder b;
  const uint32_t c = b.constant<float>({TENON_DTYPE_F32, {2}}, {1, 2});
  const uint32_t w = b.input({TENON_DTYPE_BF16, {0, 1 << 20}}, TENON_SPACE_WEIGHT);
  b.output(b.node("op", {c, TENON_NONE, w}, {{TENON_DTYPE_F32, {}}, {TENON_DTYPE_I64, {2}}},
                  {{"axis", int64_t{-1}},
                   {"eps", 1e-5},
                   {"causal", true},
                   {"dtype", tenon_dtype{TENON_DTYPE_F32}}},
                  2, "other"));
  return b.bytes();
}

// Lists with sizes, and what a later version may say, in structs that have grown.
std::vector<uint64_t> lists_and_later() {
  BlobBuilder b;
  const uint32_t x = b.input({TENON_DTYPE_F32, {2}}),
                 odd = b.input({0x100, {1, 1, 1, 1, 1, 1, 1, 1, 1}});
  b.node("concat", {x, x, odd}, {{TENON_DTYPE_F32, {4}}}, {}, 1, "tenon", {2, 1});
  b.mark_value(odd, {.scheme = 3, .value_flags = 2});
  b.mark_node(0, 1);
  b.output(x);
  b.grow(8);
  return b.bytes();
}

// The node's first attribute becomes a second function, which is empty.
std::vector<uint64_t> two_functions() {
  std::vector<uint64_t> words = every_attribute();
  auto* header = reinterpret_cast<tenon_blob_header*>(words.data());
  const uint64_t at = header->size;
  tenon_blob_function functions[2] = {};
  std::memcpy(&functions[0], words.data() + header->functions / 8, sizeof functions[0]);
  tenon_blob_node node;
  std::memcpy(&node, words.data() + functions[0].nodes / 8, sizeof node);
  auto* attr = reinterpret_cast<tenon_blob_attr*>(words.data() + node.attrs / 8);
  attr->type = TENON_ATTR_FUNCTION;
  attr->bits = 1;
  header->functions = at;
  header->function_count = 2;
  header->size = at + sizeof functions;
  words.resize(header->size / 8);
  std::memcpy(words.data() + at / 8, functions, sizeof functions);
  return words;
}

// A file that holds nothing but its headers and notes; the first one is another owner's.
struct PluginFile {
  Elf64_Ehdr head;
  Elf64_Phdr segments[2];
  struct {
    uint32_t owner_size, size, type;
    char owner[4];
    uint32_t content;
  } other;
  tenon_manifest_note note;
};

PluginFile plugin_file() {
  PluginFile f{};
  std::memcpy(f.head.e_ident, ELFMAG, SELFMAG);
  f.head.e_ident[EI_CLASS] = ELFCLASS64;
  f.head.e_ident[EI_DATA] = ELFDATA2LSB;
  f.head.e_type = ET_DYN;
  f.head.e_machine = TENON_MANIFEST_ARCH;
  f.head.e_phoff = offsetof(PluginFile, segments);
  f.head.e_phentsize = sizeof(Elf64_Phdr);
  f.head.e_phnum = 2;
  f.segments[0].p_type = PT_LOAD;
  f.segments[0].p_filesz = sizeof f;
  f.segments[1].p_type = PT_NOTE;
  f.segments[1].p_offset = offsetof(PluginFile, other);
  f.segments[1].p_filesz = sizeof f.other + sizeof f.note;
  f.other = {4, 4, 1, "GNU", 0};
  f.note = {sizeof TENON_MANIFEST_OWNER,
            sizeof(tenon_manifest),
            TENON_MANIFEST_NOTE_TYPE,
            TENON_MANIFEST_OWNER,
            {TENON_MANIFEST_MAGIC, sizeof(tenon_manifest), TENON_ABI_MAJOR, TENON_ABI_MINOR,
             TENON_ABI_MINOR, TENON_MANIFEST_ARCH, 0, 0, TENON_ISA_BASELINE, "seed", "1.0.0",
             "tenon", "cpu"}};
  return f;
}

void write_plugin_files(const fs::path& folder) {
  PluginFile f = plugin_file();
  write(folder / "sound.bin", &f, sizeof f);
  write(folder / "cut.bin", &f, sizeof f - 8);
  f.note.manifest_size = UINT32_MAX;
  write(folder / "huge_note.bin", &f, sizeof f);
  f = plugin_file();
  f.other.size = UINT32_MAX;
  write(folder / "huge_other_note.bin", &f, sizeof f);
  f = plugin_file();
  std::memset(f.note.manifest.name, 'x', sizeof f.note.manifest.name);
  std::strcpy(f.note.manifest.isa, TENON_ISA_X86_64_V4);
  f.note.manifest.sanitizers = UINT32_MAX;
  write(folder / "unterminated_name.bin", &f, sizeof f);
}

void write_gguf_files(const fs::path& folder) {
  const auto file = [&](const char* name, const GgufBytes& b) {
    write(folder / name, b.bytes().data(), b.bytes().size());
  };
  for (const uint32_t version : {1, 3}) {
    GgufBytes b(version, 3, 6);
    b.key("general.architecture", 8).text("llama").key("general.alignment", 4).u32(64);
    b.key("eps", 6).number(1e-6F).key("on", 7).number<uint8_t>(1);
    b.key("words", 9).u32(8).size(3).text("a").text("").text("bcd");
    b.key("sizes", 9).u32(5).size(2).number<int32_t>(-1).number<int32_t>(7);
    b.tensor("w", {32, 2}, 8, 0).tensor("norm", {4}, 0, 128).tensor("scalar", {}, 28, 192);
    file(version == 1 ? "version_1.gguf" : "version_3.gguf", b.data(200, 64));
  }
  GgufBytes nested(2, 0, 1);
  nested.key("n", 9).u32(9).size(2).u32(9).size(1).u32(0).size(2).number<uint16_t>(9);
  file("nested.gguf", nested.u32(8).size(1).text("x"));
  GgufBytes blocks(3, 3, 0);
  blocks.tensor("q4", {256}, 12, 0).tensor("q6", {256}, 14, 160).tensor("mx", {64}, 39, 384);
  file("blocks.gguf", blocks.data(418));
  GgufBytes shard(3, 1, 2);
  shard.key("split.no", 2).number<uint16_t>(0).key("split.count", 2).number<uint16_t>(2);
  file("shard.gguf", shard.tensor("w", {8}, 0, 0).data(32));
}

// Language models with all that a family has keys for.
void write_gguf_models(const fs::path& folder) {
  for (const bool gemma : {false, true}) {
    const std::string arch = gemma ? "gemma3" : "llama";
    GgufBytes b(3, 13, gemma ? 19 : 20);
    const auto number = [&](const std::string& key, uint32_t v) { b.key(key, 4).u32(v); };
    b.key("general.architecture", 8).text(arch);
    number(arch + ".context_length", 64), number(arch + ".embedding_length", 4);
    number(arch + ".block_count", 1), number(arch + ".feed_forward_length", 4);
    number(arch + ".attention.head_count", 2), number(arch + ".attention.head_count_kv", 1);
    number(arch + ".attention.key_length", 2), number(arch + ".attention.sliding_window", 8);
    b.key(arch + ".attention.layer_norm_rms_epsilon", 6).number(1e-5F);
    b.key(arch + ".rope.freq_base", 6).number(1e4F);
    b.key(arch + ".rope.scaling.type", 8).text("linear");
    b.key(arch + ".rope.scaling.factor", 6).number(2.0F);
    b.key("tokenizer.ggml.model", 8).text(gemma ? "llama" : "gpt2");
    b.key("tokenizer.ggml.tokens", 9).u32(8).size(4).text("<s>").text("a").text("b").text("ab");
    b.key("tokenizer.ggml.token_type", 9).u32(5).size(4).u32(3).u32(1).u32(1).u32(1);
    number("tokenizer.ggml.bos_token_id", 0);
    b.key("tokenizer.ggml.add_bos_token", 7).number<uint8_t>(1);
    if (gemma) {
      b.key("tokenizer.ggml.scores", 9).u32(6).size(4);
      for (const float score : {0.0F, -2.0F, -3.0F, -1.0F}) b.number(score);
    } else {
      b.key("tokenizer.ggml.pre", 8).text("qwen2");
      b.key("tokenizer.ggml.merges", 9).u32(8).size(1).text("a b");
    }
    uint64_t at = 0;
    const auto tensor = [&](const std::string& name, std::initializer_list<uint64_t> dims,
                            uint64_t elements) {
      b.tensor(name, dims, 1, at);  // f16
      at += (2 * elements + 31) / 32 * 32;
    };
    tensor("token_embd.weight", {4, 4}, 16), tensor("output_norm.weight", {4}, 4);
    tensor("blk.0.attn_norm.weight", {4}, 4), tensor("blk.0.attn_q.weight", {4, 4}, 16);
    tensor("blk.0.attn_k.weight", {4, 2}, 8), tensor("blk.0.attn_v.weight", {4, 2}, 8);
    tensor("blk.0.attn_output.weight", {4, 4}, 16), tensor("blk.0.ffn_norm.weight", {4}, 4);
    tensor("blk.0.ffn_gate.weight", {4, 4}, 16), tensor("blk.0.ffn_up.weight", {4, 4}, 16);
    tensor("blk.0.ffn_down.weight", {4, 4}, 16), tensor("output.weight", {4, 4}, 16);
    tensor("blk.0.attn_q.bias", {4}, 4);
    b.data(at);
    write(folder / (arch + ".gguf"), b.bytes().data(), b.bytes().size());
  }
}

// The keys of the families whose configurations are seeds of llm_config.
void write_gguf_families(const fs::path& configs, const fs::path& folder) {
  using namespace tenon::llm;
  const std::vector<float> rows(16);
  const auto content = std::as_bytes(std::span(rows));
  for (const auto& entry : fs::directory_iterator(configs)) try {
      const Json config = Json::parse(read_text(entry.path().string()));
      const ModelConfig engine = parse_config(config.dump(), entry.path().string());
      const files::Family& family = files::family_of(engine, entry.path().string());
      const fs::path file = folder / (entry.path().stem().string() + "_keys.gguf");
      tenon::GgufWriter out(file.string());
      out.set("general.architecture", family.gguf);
      files::set_config_keys(out, family, config, entry.path().string(), &engine);
      out.add("token_embd.weight", tenon::gguf_format("F32"), {4, 4});
      out.content(content);
      out.commit();
    } catch (const tenon::Error& e) {
      std::printf("no seed of %s: %s\n", entry.path().filename().c_str(), e.what());
    }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  const fs::path folder = argv[1];
  write(folder / "blob_bytes" / "one_node.bin", one_node());
  write(folder / "blob_bytes" / "every_attribute.bin", every_attribute());
  write(folder / "blob_bytes" / "two_functions.bin", two_functions());
  write(folder / "blob_bytes" / "lists_and_later.bin", lists_and_later());
  write_plugin_files(folder / "plugin_manifest");
  write_gguf_files(folder / "gguf");
  write_gguf_models(folder / "gguf_model");
  write_gguf_families(folder / "llm_config", folder / "gguf_model");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "fuzz_seeds: %s\n", e.what());
  return 1;
}
