// SPDX-License-Identifier: Apache-2.0
// ONNX files as structs: every field of a model, and files that are no sound ONNX.
#include "import/onnx/model.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "proto_writer.hpp"

using namespace tenon::core;
using onnx::Attribute;
using tenon::test::Proto;

namespace {

// Field numbers: ModelProto 7 graph, 8 opset_import, 25 functions; GraphProto 1 node,
// 5 initializer, 11 input; NodeProto 1 input, 2 output, 4 op_type, 5 attribute.
Proto model_of(const Proto& graph) {
  return Proto().number(1, 9).message(8, Proto().text(1, "").number(2, 19)).message(7, graph);
}
onnx::Model read(const Proto& model) { return onnx::read_model(model.bytes(), ""); }
onnx::Graph graph_of(const Proto& graph) { return read(model_of(graph)).graph; }
Proto node_with(const Proto& attribute) {
  return Proto().message(1, Proto().text(2, "y").text(4, "Op").message(5, attribute));
}
Attribute attribute_of(const Proto& attribute) {
  return graph_of(node_with(attribute)).nodes.at(0).attributes.at(0);
}

std::string failure(const Proto& model, Code code = Code::corrupt) {
  try {
    static_cast<void>(read(model));
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "no failure";
}
void check_failure(const std::string& text, std::string_view part) {
  CHECK_MESSAGE(text.find(part) != text.npos, "expected '", part, "' in: ", text);
}

}  // namespace

TEST_SUITE("import/onnx") {
  TEST_CASE("model: versions, opsets, and names of all that a graph holds") {
    const Proto dim_n = Proto().message(1, Proto().text(2, "N")),
                tensor = Proto().number(1, 1).message(
                    2, Proto(dim_n).message(1, Proto().number(1, 3)).message(1, Proto()));
    const Proto value = Proto().text(1, "x").message(2, Proto().message(1, tensor));
    Proto graph;
    graph.text(2, "g").message(11, value).message(12, Proto().text(1, "y"));
    graph.message(13, Proto().text(1, "z").message(2, Proto().message(4, Proto())));
    graph.message(1, Proto()
                         .text(1, "x")
                         .text(1, "")
                         .text(2, "y")
                         .text(3, "first")
                         .text(4, "Add")
                         .text(7, "ai.onnx")
                         .text(8, "o"));
    Proto file = model_of(graph);
    file.text(2, "the producer").message(8, Proto().text(1, "my.ops").number(2, 2));
    file.message(25, Proto()
                         .text(1, "f")
                         .text(4, "a")
                         .text(5, "b")
                         .text(6, "alpha")
                         .message(7, Proto().text(4, "Relu"))
                         .message(9, Proto().number(2, 18))
                         .text(10, "my.ops")
                         .message(11, Proto().text(1, "beta").real(2, 0.5f).number(20, 1))
                         .text(13, "o"));
    const onnx::Model m = read(file);
    CHECK(m.ir_version == 9);
    CHECK(m.producer == "the producer");
    CHECK(m.opsets.at("") == 19);
    CHECK(m.opsets.at("my.ops") == 2);
    REQUIRE(m.graph.inputs.size() == 1);
    const onnx::ValueInfo& x = m.graph.inputs[0];
    CHECK(x.name == "x");
    CHECK(x.kind == onnx::ValueInfo::Kind::tensor);
    CHECK(x.dtype == kF32);
    REQUIRE((x.dims && x.dims->size() == 3));
    CHECK((*x.dims)[0].symbol == "N");
    CHECK((*x.dims)[1].size == 3);
    CHECK((*x.dims)[2].size == -1);
    CHECK(m.graph.outputs.at(0).kind == onnx::ValueInfo::Kind::none);
    CHECK(m.graph.values.at(0).kind == onnx::ValueInfo::Kind::sequence);
    const onnx::Node& n = m.graph.nodes.at(0);
    CHECK(n.inputs == std::vector<std::string>{"x", ""});
    CHECK(n.outputs == std::vector<std::string>{"y"});
    CHECK((n.name == "first" && n.op == "Add" && n.domain.empty() && n.overload == "o"));
    const onnx::Function& f = m.functions.at(0);
    CHECK((f.name == "f" && f.domain == "my.ops" && f.overload == "o"));
    CHECK((f.inputs.at(0) == "a" && f.outputs.at(0) == "b" && f.attributes.at(0) == "alpha"));
    CHECK(f.attribute_defaults.at(0).f == 0.5f);
    CHECK(f.nodes.at(0).op == "Relu");
    CHECK(f.opsets.at("") == 18);
  }

  TEST_CASE("model: a file before IR version 3 has opset 1") {
    CHECK(read(Proto().number(1, 2).message(7, Proto())).opsets.at("") == 1);
  }

  TEST_CASE("attribute: each kind") {
    const auto named = [] { return Proto().text(1, "a"); };
    CHECK(attribute_of(named().real(2, 1.5f).number(20, 1)).f == 1.5f);
    CHECK(attribute_of(named().number(3, -7).number(20, 2)).i == -7);
    CHECK(attribute_of(named().text(4, std::string_view("a\0b", 3)).number(20, 3)).s.size() == 3);
    const Proto one = Proto().number(1, 1).number(2, 1).packed_fixed<float>(4, {2});
    CHECK(attribute_of(named().message(5, one).number(20, 4)).t->content().size() == 4);
    CHECK(attribute_of(named().message(6, Proto().text(2, "body")).number(20, 5)).g->name ==
          "body");
    CHECK(attribute_of(named().packed_fixed<float>(7, {1, 2}).number(20, 6)).fs ==
          std::vector<float>{1, 2});
    CHECK(attribute_of(named().real(7, 1).real(7, 2).number(20, 6)).fs == std::vector<float>{1, 2});
    CHECK(attribute_of(named().packed(8, {1, -2, INT64_MAX}).number(20, 7)).is ==
          std::vector<int64_t>{1, -2, INT64_MAX});
    CHECK(attribute_of(named().number(8, 1).packed(8, {2}).number(8, 3).number(20, 7)).is ==
          std::vector<int64_t>{1, 2, 3});
    CHECK(attribute_of(named().text(9, "p").text(9, "q").number(20, 8)).strings ==
          std::vector<std::string>{"p", "q"});
    CHECK(attribute_of(named().message(10, one).message(10, one).number(20, 9)).tensors.size() ==
          2);
    const Proto sparse = Proto().message(1, one).message(2, one).packed(3, {4, 5});
    CHECK(attribute_of(named().message(22, sparse).number(20, 11)).sparse_t->dims ==
          std::vector<int64_t>{4, 5});
    for (const auto& [field, kind] : {std::pair{11u, 10}, {14u, 13}, {15u, 14}, {23u, 12}})
      CHECK(attribute_of(named().message(field, Proto()).number(20, kind)).kind == kind);
    CHECK(attribute_of(named().text(21, "outer").number(20, 5)).refers_to == "outer");
    CHECK(attribute_of(named().number(3, 4)).kind ==
          Attribute::i64);  // the first files lack a type
  }

  TEST_CASE("sparse initializer: its name is that of its values") {
    const Proto values = Proto().number(1, 1).number(2, 1).text(8, "w").packed_fixed<float>(4, {2}),
                indices = Proto().number(1, 1).number(2, 7).packed(7, {3});
    const onnx::Graph g =
        graph_of(Proto().message(15, Proto().message(1, values).message(2, indices).number(3, 9)));
    CHECK(g.sparse_initializers.at(0).first == "w");
    CHECK(g.sparse_initializers[0].second.dims == std::vector<int64_t>{9});
    check_failure(failure(model_of(Proto().message(15, Proto().message(1, values)))),
                  "graph.sparse_initializer[0]: byte 12: a sparse tensor lacks indices");
  }

  TEST_CASE("hostile: every place where a file can end") {
    const Proto whole = model_of(
        Proto()
            .message(11, Proto().text(1, "x").message(2, Proto().message(1, Proto().number(1, 1))))
            .message(5, Proto().number(1, 2).number(2, 1).packed_fixed<float>(4, {1, 2}))
            .message(1, Proto().text(4, "Relu").message(
                            5, Proto().text(1, "a").packed(8, {1, 300}).number(20, 7))));
    CHECK(read(whole).graph.nodes.size() == 1);
    size_t refused = 0;
    for (size_t size = 0; size < whole.bytes().size(); ++size) {
      try {
        static_cast<void>(onnx::read_model(whole.bytes().substr(0, size), ""));
      } catch (const Error& e) {
        CHECK(e.code() == Code::corrupt);
        CHECK(std::string(e.what()).find("model in memory") == 0);
        ++refused;
      }
    }
    CHECK(refused == whole.bytes().size());  // the graph comes last
  }

  TEST_CASE("hostile: wrong wire types, tags and lengths, with the place") {
    check_failure(
        failure(model_of(Proto().tag(2, 0).varint(1))),
        "graph: byte 10: field name: wrong wire type; expected length-delimited, got varint");
    check_failure(failure(model_of(Proto().message(1, Proto().number(1, 1)))),
                  "graph.node[0]: byte 12: field input: wrong wire type");
    check_failure(failure(Proto().tag(0, 0).varint(1)), "field number 0 is not valid");
    check_failure(failure(Proto().tag(1, 3)), "field 1: wire type 3 is not known");
    check_failure(failure(Proto().raw("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")),
                  "a varint has more than 64 bits");
    check_failure(failure(Proto().tag(7, 2).varint(UINT64_MAX)), "its length leaves the message");
    check_failure(failure(Proto().tag(99, 2).varint(5).raw("1234")),
                  "field 99: its length leaves the message; expected at most 4 bytes, got 5");
    // A message that ends beyond the one around it.
    check_failure(failure(model_of(Proto().tag(1, 2).varint(3).tag(2, 2))), "its length leaves");
    // A packed list that ends within an entry.
    check_failure(
        failure(model_of(node_with(Proto().text(1, "a").text(8, "\xff").number(20, 7)))),
        "graph.node[0].attribute[0]: byte 27: field ints: the message ends within a varint");
    check_failure(failure(model_of(node_with(Proto().text(1, "a").text(7, "abc").number(20, 6)))),
                  "field floats: the message ends within it; expected 4 bytes, got 3");
  }

  TEST_CASE("hostile: what the format forbids") {
    check_failure(failure(Proto()), "is no ONNX model: it has no graph");
    check_failure(failure(model_of(Proto()).message(7, Proto())), "field graph is there twice");
    check_failure(failure(model_of(Proto()).message(8, Proto().number(2, 1))),
                  "opset_import: domain '' has versions 19 and 1");
    check_failure(failure(model_of(Proto().message(1, Proto().text(3, "n")))),
                  "node 'n' has no op_type");
    check_failure(failure(model_of(Proto().text(2, std::string_view("a\0b", 3)))),
                  "field name: the text has a zero byte");
    check_failure(failure(model_of(node_with(Proto().number(3, 1)))), "an attribute has no name");
    check_failure(failure(model_of(node_with(Proto().text(1, "a").number(20, 4)))),
                  "attribute 'a' lacks the value of its type 4");
    check_failure(
        failure(model_of(node_with(Proto().text(1, "a").number(20, 15))), Code::unsupported),
        "attribute 'a': type 15 is not known; expected 0 to 14");
    const auto dim = [](int64_t size) {
      const Proto shape = Proto().message(1, Proto().number(1, size));
      return model_of(
          Proto().message(11, Proto().message(2, Proto().message(1, Proto().message(2, shape)))));
    };
    CHECK(read(dim(-1)).graph.inputs[0].dims->at(0).size == -1);
    check_failure(failure(dim(-2)),
                  "graph.input[0].type.tensor_type.shape.dim[0]: byte 20: dim_value -2");
  }

  TEST_CASE("hostile: graphs nested beyond the limit, and far beyond it") {
    const auto nested = [](int depth) {
      Proto graph;
      for (int i = 1; i < depth; ++i) graph = node_with(Proto().text(1, "g").message(6, graph));
      return model_of(graph);
    };
    CHECK(read(nested(32)).graph.nodes.size() == 1);
    for (const int depth : {33, 2000})
      check_failure(failure(nested(depth), Code::unsupported),
                    "graphs are nested more than 32 deep");
  }

  TEST_CASE("hostile: many empty entries in a small file") {
    std::string names;
    for (int i = 0; i < (1 << 22) + 1; ++i) names += std::string_view("\x0a\0", 2);
    check_failure(failure(model_of(Proto().message(1, Proto().raw(names))), Code::unsupported),
                  "the model has more than 4194304 nodes, attributes, values and names");
  }

  TEST_CASE("model: unknown fields are skipped, of each wire type") {
    Proto graph = Proto().number(900, 1).text(901, "x").real(902, 1).tag(903, 1).fixed(1.0);
    CHECK(graph_of(graph.text(2, "g")).name == "g");
  }

  TEST_CASE("model: a file that is missing, empty or a folder") {
    const auto code_of = [](const std::string& path) {
      try {
        static_cast<void>(onnx::read_model(path));
      } catch (const Error& e) {
        return e.code();
      }
      return Code::ok;
    };
    CHECK(code_of("/no/such/file.onnx") == Code::not_found);
    CHECK(code_of("/dev/null") == Code::io_error);
    CHECK(code_of("/tmp") == Code::io_error);
  }
}
