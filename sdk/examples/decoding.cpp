// SPDX-License-Identifier: Apache-2.0
// Text generation within one run: a greedy search that a stop ends, and a beam search, each one `while`.
//
// The model is a small recurrent one over letters. Its weights are random, so it babbles, but a trained one is decoded
// in the same way. Plain loops on the host do the same; both must come to the same texts.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tenon/tenon.hpp>

namespace {

using tenon::Graph, tenon::Value;
using Values = std::vector<Value>;

constexpr int64_t kLetters = 20, kWidth = 24, kLongest = 16, kBeams = 3;
constexpr int64_t kStop = 0;     // a letter; 1 is 'a'
constexpr uint32_t kSeed = 674;  // of weights with which no choice is close to a tie
constexpr float kNever = -std::numeric_limits<float>::infinity();  // the log of probability 0

// ---- The model, as ops

struct Model {
  Value embedding, recurrent, output;  // [letters, width], [width, width], [width, letters]
  Values list() const { return {embedding, recurrent, output}; }
};

struct Step {
  Value hidden, logits;
};

// n letters at once: tokens [n], hidden [n, width], logits [n, letters].
Step step(Graph& g, const Model& m, Value tokens, Value hidden) {
  const Value next = g.tanh(g.gather(m.embedding, tokens) + g.matmul(hidden, m.recurrent));
  return {next, g.matmul(next, m.output)};
}

// ---- Loops

// Gives a function of a loop its inputs: the carry, and the model, which no trip changes.
template <size_t n>
std::array<Value, n> inputs(Graph& function, const Graph& around, Values carry,
                            const Model& model) {
  for (Value v : model.list()) carry.push_back(v);
  std::array<Value, n> in;
  for (size_t k = 0; k < n; ++k)
    in[k] = function.input("in" + std::to_string(k), around.type(carry.at(k)));
  return in;
}

void outputs(Graph& function, const Values& values) {
  for (size_t k = 0; k < values.size(); ++k) function.output("out" + std::to_string(k), values[k]);
}

template <class T>
Value filled(Graph& g, std::vector<int64_t> dims, T value) {
  return g.expand(g.scalar(value), std::move(dims));
}

// Always takes the likeliest letter, until that is the stop or the text is full.
void add_greedy(Graph& g, const Model& model, Value start) {
  const Values carry = {filled<int64_t>(g, {kLongest}, kStop),  // the text
                        filled<int64_t>(g, {1}, 0),             // the place of the next letter
                        start,                                  // the letter before it
                        filled<float>(g, {1, kWidth}, 0)};      // the hidden state

  Graph go_on("go on");
  {
    const auto [text, place, letter, hidden, e, r, o] = inputs<7>(go_on, g, carry, model);
    outputs(go_on, {go_on.and_(go_on.lt(place, kLongest), go_on.ne(letter, kStop))});
  }
  Graph body("next letter");
  {
    const auto [text, place, letter, hidden, e, r, o] = inputs<7>(body, g, carry, model);
    const Step next = step(body, {e, r, o}, letter, hidden);
    const Value best = body.argmax(next.logits);
    outputs(body, {body.scatter(text, place, best), place + 1, best, next.hidden});
  }
  const tenon::Node loop = g.while_(carry, go_on, body, {.captured = model.list()});
  g.output("text", loop[0]);
  g.output("length", loop[1]);
}

// Keeps the kBeams likeliest texts, best first, until each has its stop. max_trip ends it when they are full.
void add_beam_search(Graph& g, const Model& model, Value start) {
  // At the start all beams are equal, so all but one are made impossible.
  std::vector<float> first(kBeams, kNever);
  first[0] = 0;
  const Value starts = g.expand(start, {kBeams});
  const Values carry = {filled<int64_t>(g, {kBeams, kLongest}, kStop),  // the texts
                        filled<int64_t>(g, {1}, 0),             // the place of the next letters
                        starts,                                 // the letters before them
                        filled<float>(g, {kBeams, kWidth}, 0),  // the hidden states
                        g.constant({kBeams}, first),            // the scores: log probabilities
                        g.eq(starts, kStop)};                   // finished?

  Graph go_on("go on");
  {
    const auto [texts, place, letters, hidden, scores, finished, e, r, o] =
        inputs<9>(go_on, g, carry, model);
    outputs(go_on, {go_on.not_(go_on.all(finished))});
  }
  Graph body("next letters");
  {
    const auto [texts, place, letters, hidden, scores, finished, e, r, o] =
        inputs<9>(body, g, carry, model);
    const Step next = step(body, {e, r, o}, letters, hidden);

    // What each beam would score with each letter. A finished one takes more stops, at no cost.
    std::vector<float> stops(kLetters, kNever);
    stops[kStop] = 0;
    const auto column = [&](Value x) { return body.reshape(x, {kBeams, 1}); };
    const Value log = body.softmax(next.logits, {.log = true});
    const Value gain = body.where(column(finished), body.constant({kLetters}, stops), log);

    // The best of them all. Their indices in the flat list are parent * kLetters + letter.
    const Value flat = body.reshape(column(scores) + gain, {kBeams * kLetters});
    const tenon::Node best = body.topk(flat, {.k = kBeams});
    const Value parent = best[1] / kLetters, letter = body.mod(best[1], kLetters);

    // Each new beam continues the text and the state of its parent.
    const Value kept = body.gather(texts, parent);
    const Value longer = body.scatter(kept, place, column(letter), {.axis = 1});
    const Value state = body.gather(next.hidden, parent);
    outputs(body, {longer, place + 1, letter, state, best[0], body.eq(letter, kStop)});
  }
  const tenon::Node loop =
      g.while_(carry, go_on, body, {.max_trip = kLongest, .captured = model.list()});
  g.output("beams", loop[0]);
  g.output("scores", loop[4]);
}

// ---- The same on the host

struct HostModel {
  std::mt19937 random{kSeed};
  std::vector<float> embedding = draw(kLetters * kWidth, 1), recurrent = draw(kWidth * kWidth, 0.5),
                     output = draw(kWidth * kLetters, 1);

  std::vector<float> draw(size_t count, double size) {
    std::vector<float> out(count);
    for (float& x : out) x = static_cast<float>(size * (random() / 2147483648.0 - 1));
    return out;
  }

  // Reads a letter. Returns the log probabilities of the next one.
  std::vector<double> step(int64_t letter, std::vector<double>& hidden) const {
    std::vector<double> next(kWidth), log(kLetters);
    for (int64_t j = 0; j < kWidth; ++j) {
      double sum = embedding[letter * kWidth + j];
      for (int64_t i = 0; i < kWidth; ++i) sum += hidden[i] * recurrent[i * kWidth + j];
      next[j] = std::tanh(sum);
    }
    hidden = next;
    double total = 0;
    for (int64_t j = 0; j < kLetters; ++j) {
      for (int64_t i = 0; i < kWidth; ++i) log[j] += hidden[i] * output[i * kLetters + j];
      total += std::exp(log[j]);
    }
    for (double& x : log) x -= std::log(total);
    return log;
  }
};

using Text = std::vector<int64_t>;

Text greedy(const HostModel& model, int64_t letter) {
  Text text;
  std::vector<double> hidden(kWidth);
  while (letter != kStop && text.size() < kLongest) {
    const std::vector<double> log = model.step(letter, hidden);
    letter = std::ranges::max_element(log) - log.begin();
    text.push_back(letter);
  }
  return text;
}

struct Beam {
  Text text{};
  double score = 0;
  std::vector<double> hidden = std::vector<double>(kWidth);
};

std::vector<Beam> beam_search(const HostModel& model, int64_t start) {
  std::vector<Beam> beams(1);
  const auto last = [&](const Beam& b) { return b.text.empty() ? start : b.text.back(); };
  const auto ended = [&](const Beam& b) { return last(b) == kStop || b.text.size() == kLongest; };
  while (!std::ranges::all_of(beams, ended)) {
    std::vector<Beam> longer;
    for (Beam& b : beams) {
      if (ended(b)) {
        longer.push_back(b);
        continue;
      }
      const std::vector<double> log = model.step(last(b), b.hidden);
      for (int64_t letter = 0; letter < kLetters; ++letter) {
        longer.push_back(b);
        longer.back().text.push_back(letter);
        longer.back().score += log[letter];
      }
    }
    std::ranges::sort(longer, std::greater{}, &Beam::score);
    beams.assign(longer.begin(), longer.begin() + kBeams);
  }
  return beams;
}

// ---- Comparing

std::string written(const Text& text) {
  std::string out;
  for (int64_t letter : text) {
    out += letter == kStop ? '.' : static_cast<char>('a' + letter - 1);
    if (letter == kStop) break;  // only stops follow
  }
  return out;
}

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("expected " + what);
}

}  // namespace

int main() try {
  const HostModel host;
  const tenon::Runtime runtime;
  tenon::Store store(runtime);
  Graph g("decoding");
  const auto weight = [&](const char* name, std::vector<int64_t> dims, const auto& content) {
    store.set(TENON_SPACE_WEIGHT, name, dims, content);
    return g.weight(name, {tenon::f32, dims});
  };
  const Model model = {.embedding = weight("embedding", {kLetters, kWidth}, host.embedding),
                       .recurrent = weight("recurrent", {kWidth, kWidth}, host.recurrent),
                       .output = weight("output", {kWidth, kLetters}, host.output)};
  const Value start = g.input("start", {tenon::i64, {1}});
  add_greedy(g, model, start);
  add_beam_search(g, model, start);
  const tenon::Executable decode(runtime, g, store);
  tenon::Context run(decode);

  bool stopped = false;
  for (const char letter : {'a', 'b', 'c'}) {
    const int64_t first = letter - 'a' + 1;
    run.set("start", Text{first});
    run.run();  // all letters of both searches

    Text text = run.get<int64_t>("text");
    text.resize(static_cast<size_t>(run.get_scalar<int64_t>("length")));
    std::printf("%c  greedy  %s\n", letter, written(text).c_str());
    const Text expected = greedy(host, first);
    expect(text == expected, "the text of the host, " + written(expected));
    stopped |= text.size() < kLongest;

    const Text texts = run.get<int64_t>("beams");
    const std::vector<float> scores = run.get<float>("scores");
    const std::vector<Beam> beams = beam_search(host, first);
    for (size_t k = 0; k < kBeams; ++k) {
      const Text beam(&texts[k * kLongest], &texts[k * kLongest] + kLongest);
      std::printf("   %7.3f %s\n", scores[k], written(beam).c_str());
      expect(written(beam) == written(beams[k].text), "the host's " + written(beams[k].text));
      expect(std::abs(scores[k] - beams[k].score) < 1e-3,
             "the host's score, " + std::to_string(beams[k].score));
    }
  }
  expect(stopped, "a greedy text that a stop ended");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "decoding: %s\n", e.what());
  return 1;
}
