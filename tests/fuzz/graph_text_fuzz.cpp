// SPDX-License-Identifier: Apache-2.0
// Any bytes as graph text: refused with an Error, or a sound graph that prints and parses back,
// binds, differentiates, simplifies, becomes a blob that its reader accepts, and takes sizes in
// buckets.
#include "check.hpp"
#include "grad/grad.hpp"
#include "ir/blob.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "plan/rewrite/bind.hpp"
#include "plan/rewrite/buckets.hpp"
#include "plan/rewrite/simplify.hpp"

using namespace tenon::core;
using tenon::fuzz::must;

namespace {

void plan(const Graph& graph) {
  std::map<std::string, int64_t> symbols;
  for (const std::string& s : graph.symbols()) symbols[s] = 3;
  const Graph bound = tenon::core::bind(graph, symbols);
  verify(bound);
  const Graph expanded = expand_grads(bound);
  verify(expanded);
  const Graph small = simplify(expanded);
  verify(small);
  const RegionBlob written = write_blob(small);
  tenon_blob blob;
  must(tenon_blob_open(written.blob.data(), written.blob.size(), &blob) == nullptr,
       "the reader refuses our blob");
}

void pad(const Graph& graph) {
  std::map<std::string, int64_t> symbols;
  for (const std::string& s : graph.symbols()) symbols[s] = 4;
  const PaddedGraph padded = pad_to_buckets(graph, symbols, graph.symbols());
  verify(padded.graph);
  verify(expand_grads(padded.graph));
}

template <class Work>
void refused_or_done(const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  refused_or_done([&] {
    const Graph graph = parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    verify(graph);
    const std::string text = print(graph);
    must(print(parse(text, "again")) == text, "print and parse disagree");
    refused_or_done([&] { plan(graph); });
    refused_or_done([&] { pad(graph); });
  });
  return 0;
}
