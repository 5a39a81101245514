// SPDX-License-Identifier: Apache-2.0
// onnx_model MODEL: runs an ONNX model. line.onnx beside this file computes y = 2 a - b + 0.5 for
// three rows (a, b).
#include <iostream>
#include <tenon/tenon.hpp>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: onnx_model line.onnx\n";
    return 2;
  }
  const tenon::Runtime runtime;                                  // loads the plugins
  tenon::Store store(runtime);                                   // gets the model's weights
  const tenon::Graph model = tenon::Graph::import(argv[1], store);
  const tenon::Executable executable(runtime, model, store);     // compiled for the best device
  tenon::Context run(executable);

  run.set("x", tenon::Tensor({3, 2}, {1.f, 0.f, 0.f, 1.f, 2.f, 1.f}));
  run.run();
  const std::vector<float> y = run.get<float>("y");
  for (const float v : y) std::cout << v << '\n';                // 2.5 -0.5 3.5
  return y == std::vector<float>{2.5f, -0.5f, 3.5f} ? 0 : 1;
} catch (const tenon::Error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
