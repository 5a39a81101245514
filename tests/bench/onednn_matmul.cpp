// SPDX-License-Identifier: Apache-2.0
// What oneDNN does for f32 products of given shapes, the peer of `tenon bench --op matmul`, in each
// of its ways: its matmul primitive and its sgemm with all threads, and sgemm on one thread from
// each of several tasks that split the rows or the columns.
//
// onednn_matmul THREADS SECONDS MxNxK[t]...   SECONDS: for each way; t: b lies as [n, k]. One line
// a way: shape, way, microseconds, GFLOP/s.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Shape {
  int64_t m, n, k;
  bool b_turned;
};

struct Operands {
  const Shape& s;
  std::vector<float> a, b, c;
  explicit Operands(const Shape& shape)
      : s(shape),
        a(static_cast<size_t>(s.m * s.k)),
        b(static_cast<size_t>(s.k * s.n)),
        c(static_cast<size_t>(s.m * s.n)) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7919 % 2003) / 1001 - 1;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 6271 % 1999) / 999 - 1;
  }
  // The block of c at (i, j) of `rows` x `cols`.
  void sgemm(int64_t i, int64_t rows, int64_t j, int64_t cols) {
    const int64_t ldb = s.b_turned ? s.k : s.n;
    if (dnnl_sgemm('N', s.b_turned ? 'T' : 'N', rows, cols, s.k, 1,
                   &a[static_cast<size_t>(i * s.k)], s.k,
                   &b[static_cast<size_t>(s.b_turned ? j * s.k : j)], ldb, 0,
                   &c[static_cast<size_t>(i * s.n + j)], s.n) != dnnl_success)
      throw dnnl::error(dnnl_runtime_error, "sgemm failed");
  }
};

// Seconds of the median of at least nine runs and so many seconds.
double median_seconds(double seconds, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  run();
  std::vector<double> times;
  for (double sum = 0; times.size() < 9 || sum < seconds; sum += times.back()) {
    const auto begin = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double primitive_seconds(double seconds, Operands& o) {
  using Tag = dnnl::memory::format_tag;
  const Shape& s = o.s;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto describe = [](int64_t rows, int64_t cols, Tag tag) {
    return dnnl::memory::desc({rows, cols}, dnnl::memory::data_type::f32, tag);
  };
  const auto a = describe(s.m, s.k, Tag::ab),
             b = describe(s.k, s.n, s.b_turned ? Tag::ba : Tag::ab),
             c = describe(s.m, s.n, Tag::ab);
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
  std::unordered_map<int, dnnl::memory> args = {
      {DNNL_ARG_SRC, dnnl::memory(a, engine, o.a.data())},
      {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine, o.b.data())},
      {DNNL_ARG_DST, dnnl::memory(c, engine, o.c.data())}};
  return median_seconds(seconds, [&] {
    product.execute(stream, args);
    stream.wait();
  });
}

// Tasks of `block` rows or columns on `threads` threads, each product on one.
double split_seconds(double seconds, Operands& o, int threads, int64_t block, bool rows) {
  const int64_t count = rows ? o.s.m : o.s.n;
  return median_seconds(seconds, [&] {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i += block) {
      const int64_t width = std::min(block, count - i);
      if (rows) {
        o.sgemm(i, width, 0, o.s.n);
      } else {
        o.sgemm(0, o.s.m, i, width);
      }
    }
  });
}

Shape parse(const std::string& text) {
  Shape s{};
  char turned = 0;
  const int read = std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &s.m, &s.n, &s.k, &turned);
  if (read < 3 || (read == 4 && turned != 't') || s.m < 1 || s.n < 1 || s.k < 1) {
    std::fprintf(stderr, "onednn_matmul: %s: not MxNxK or MxNxKt\n", text.c_str());
    std::exit(2);
  }
  s.b_turned = read == 4;
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0;
  if (argc < 4 || threads < 1 || !(seconds > 0)) {
    std::fprintf(stderr, "usage: onednn_matmul THREADS SECONDS MxNxK[t]...\n");
    return 2;
  }
  omp_set_num_threads(threads);
  omp_set_max_active_levels(1);
  for (int i = 3; i < argc; ++i) {
    const Shape shape = parse(argv[i]);
    Operands operands(shape);
    const auto show = [&](const std::string& way, double took) {
      std::printf("%s %s %.1f us %.1f GFLOP/s\n", argv[i], way.c_str(), took * 1e6,
                  2e-9 * static_cast<double>(shape.m * shape.n * shape.k) / took);
      std::fflush(stdout);
    };
    show("matmul", primitive_seconds(seconds, operands));
    show("sgemm", median_seconds(seconds, [&] { operands.sgemm(0, shape.m, 0, shape.n); }));
    for (const bool rows : {true, false})
      for (const int64_t block : {64, 256})
        if (block < (rows ? shape.m : shape.n))
          show((rows ? "rows" : "columns") + std::to_string(block),
               split_seconds(seconds, operands, threads, block, rows));
  }
}
