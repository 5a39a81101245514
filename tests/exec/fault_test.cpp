// SPDX-License-Identifier: Apache-2.0
// Every call of a plugin fails in turn while a model is compiled, trained for a step and saved:
// each time an error with a message, and then the same objects give the right values.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "cli/lm/checkpoint.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;
namespace fs = std::filesystem;

namespace {

const lm::Config kTiny{
    .vocab = 32, .dim = 8, .layers = 1, .heads = 2, .kv_heads = 1, .ffn = 12, .context = 6};

// What the n-th call says, on which device. The plugins without fused ops of their own have
// hundreds of calls, so that one round each has to do.
struct Round {
  const char* device;
  tenon_code code;
  bool lasting, async;
};
const Round kRounds[] = {{"cpu:0", TENON_OUT_OF_MEMORY, false, false},
                         {"cpu:0", TENON_INTERNAL, true, true},
                         {"cpu:0", TENON_DEVICE_LOST, false, false},
                         {"template:0", TENON_OUT_OF_MEMORY, false, true},
                         {"adversary:0", TENON_DEVICE_LOST, false, false},
                         {"adversary:0", TENON_OUT_OF_MEMORY, false, true}};

// Tokens of kTiny, other ones for each step.
std::vector<int32_t> tiny_tokens(int64_t step) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kBatch * (kTiny.context + 1); ++i)
    tokens.push_back(static_cast<int32_t>((5 * i + 3 * step + i * i) % kTiny.vocab));
  return tokens;
}

// A model, its moments, and a step of training that may be repeated.
class Model {
 public:
  explicit Model(const std::string& device)
      : device_(device), store_(runtime()), graph_(lm::train_graph(kTiny, {.batch = kBatch})) {
    reset();
  }
  void reset() {
    set_weights(store_, kTiny);
    const uint32_t count = tenon_graph_count(graph_.handle(), TENON_SPACE_STATE);
    for (uint32_t i = 0; i < count; ++i) {
      tenon_str name{};
      tenon_value value = 0;
      REQUIRE(!tenon_graph_name(graph_.handle(), TENON_SPACE_STATE, i, &name, &value, nullptr));
      const TensorType type = graph_.type(Value{value});
      const std::vector<char> zeros(type.bytes(), 0);
      store_.set(TENON_SPACE_STATE, {name.data, name.size}, type, zeros.data(), zeros.size());
    }
  }
  void compile() {
    executable_ = std::make_unique<Executable>(runtime(), graph_, store_,
                                               ExecutableOptions{.device = device_});
    context_ = std::make_unique<Context>(*executable_);
  }
  float step(int64_t step, bool async = false) {
    ran_ = false;
    context_->set("tokens", {kBatch, kTiny.context + 1}, tiny_tokens(step));
    context_->set("lr", 1e-2f);
    if (async) {
      context_->run_async();
      context_->wait();
    } else {
      context_->run();
    }
    ran_ = true;
    return loss();
  }
  float loss() { return context_->get_scalar<float>("loss"); }
  bool ran() const { return ran_; }  // the last step; perhaps its loss could not be read
  Store& store() { return store_; }

 private:
  std::string device_;
  Store store_;
  Graph graph_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Context> context_;
  bool ran_ = false;
};

// Losses of three steps without a fault, to the bit.
const std::vector<float>& right_losses(const std::string& device) {
  static std::map<std::string, std::vector<float>> all;
  std::vector<float>& losses = all[device];
  if (losses.empty()) {
    Model model(device);
    model.compile();
    for (int64_t s = 0; s < 3; ++s) losses.push_back(model.step(s));
    REQUIRE(losses[2] != losses[0]);
  }
  return losses;
}

// Lets the first, second, ... call of `work` fail until it has no more calls; `after` sees each
// failure. Returns how many there were.
uint64_t fail_in_turn(const Round& round, const std::function<void()>& before,
                      const std::function<void()>& work, const std::function<void()>& after) {
  for (uint64_t nth = 1;; ++nth) {
    CAPTURE(nth);
    before();
    runtime().set_fault({.nth = nth, .code = round.code, .lasting = round.lasting});
    tenon_code code = TENON_OK;
    const std::string text = error_of(work, &code);
    const uint64_t met = runtime().lift_fault();
    if (met < nth) {
      CHECK(text == "no error");
      return nth - 1;
    }
    // Without memory many calls are made once more.
    if (text == "no error" && round.code == TENON_OUT_OF_MEMORY && !round.lasting) {
      after();
      continue;
    }
    // Where one call fails for good, a later one may be what is told of.
    CHECK_MESSAGE(says(text, {"plugin ", ": fault asked for, "}), text);
    CHECK(code == round.code);
    after();
  }
}

// The step again, on what the failure left: right, or refused by name until the store is set anew.
void recover(Model& model, const std::string& device, int64_t step, bool& refused) {
  tenon_code code = TENON_OK;
  float loss = 0;
  const std::string text =
      error_of([&] { loss = model.ran() ? model.loss() : model.step(step); }, &code);
  if (code == TENON_OK) {
    CHECK(loss == right_losses(device)[static_cast<size_t>(step)]);
  } else {
    refused = true;
    CHECK(code == TENON_UNDEFINED_STATE);
    CHECK(says(text, {" is undefined: run ", "fault asked for", "set or load it again"}));
    model.reset();
    for (int64_t s = 0; s <= step; ++s)
      CHECK(model.step(s) == right_losses(device)[static_cast<size_t>(s)]);
  }
  CHECK(model.step(step + 1) == right_losses(device)[static_cast<size_t>(step) + 1]);
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tenon-fault-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  // Every file and what is in it.
  std::map<std::string, std::string> content() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      std::ifstream in(entry.path(), std::ios::binary);
      all[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return all;
  }

 private:
  fs::path path_;
};

}  // namespace

TEST_SUITE("exec/fault") {
  TEST_CASE("compile: each call fails in turn, and then the model compiles and learns") {
    for (const Round& round : kRounds) {
      if (round.async) continue;
      const std::string device = round.device;
      CAPTURE(device);
      CAPTURE(round.code);
      Model model(device);
      const uint64_t calls = fail_in_turn(
          round, [] {}, [&] { model.compile(); }, [] {});
      CHECK(calls > 3);
      model.compile();
      for (int64_t s = 0; s < 3; ++s)
        CHECK(model.step(s) == right_losses(device)[static_cast<size_t>(s)]);
    }
  }

  TEST_CASE("first step: each call fails in turn, and the step again is right or refused by name") {
    for (const Round& round : kRounds) {
      const std::string device = round.device;
      CAPTURE(device);
      CAPTURE(round.code);
      std::unique_ptr<Model> model;
      bool refused = false;
      const auto before = [&] {
        model = std::make_unique<Model>(device);
        model->compile();
      };
      const uint64_t calls = fail_in_turn(
          round, before, [&] { model->step(0, round.async); },
          [&] { recover(*model, device, 0, refused); });
      CHECK(calls > 20);  // memory and content for each weight and moment
      CHECK(refused);     // a failure of the run itself leaves weights undefined
    }
  }

  TEST_CASE("later step: each call fails in turn, on one executable") {
    for (const Round& round : kRounds) {
      const std::string device = round.device;
      CAPTURE(device);
      CAPTURE(round.code);
      Model model(device);
      model.compile();
      bool refused = false;
      const auto before = [&] {
        model.reset();
        CHECK(model.step(0) == right_losses(device)[0]);
      };
      const uint64_t calls = fail_in_turn(
          round, before, [&] { model.step(1, round.async); },
          [&] { recover(model, device, 1, refused); });
      CHECK(calls >= 3);
      CHECK(refused);
    }
  }

  TEST_CASE("a failure that names no step still says device and run") {
    for (const char* device : {"cpu:0", "template:0"}) {
      CAPTURE(std::string(device));
      Model model(device);
      model.compile();
      runtime().set_fault(
          {.device = device, .calls = TENON_FAULT_RUN, .code = TENON_OUT_OF_MEMORY});
      try {
        model.step(0);
        FAIL_CHECK("not refused");
      } catch (const Error& e) {
        CHECK(e.code() == TENON_OUT_OF_MEMORY);
        CHECK(e.place().device == device);
        CHECK(e.place().node.empty());
        CHECK(e.place().step == TENON_NONE);
        CHECK(e.place().run_id > 0);
      }
      runtime().lift_fault();
    }
  }

  TEST_CASE("several at once: faults in one thread's run leave the others' right") {
    Model model("cpu:0");
    model.compile();
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0, failed = 0;
    runtime().set_fault({.device = "template:0", .calls = TENON_FAULT_RUN, .lasting = true});
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const std::string device = t % 2 ? "cpu:0" : "template:0";
        for (int i = 0; i < 5; ++i) {
          Model own(device);
          own.compile();
          const std::string text = error_of([&] {
            if (own.step(0) != right_losses("cpu:0")[0]) ++wrong;
          });
          if (text != "no error") ++failed;
        }
      });
    static_cast<void>(right_losses("cpu:0"));
    for (auto& t : threads) t.join();
    CHECK(runtime().lift_fault() == 10);
    CHECK(failed == 10);
    CHECK(wrong == 0);
  }

  TEST_CASE("save: a store's file is as before until all of it could be read") {
    for (const Round& round : kRounds) {
      CAPTURE(std::string(round.device));
      CAPTURE(round.code);
      const Folder folder;
      const std::string file = folder.path() + "/weights.safetensors";
      Model model(round.device);
      model.compile();
      model.store().save(TENON_SPACE_WEIGHT, file);
      const auto old = folder.content();
      model.step(0);
      const uint64_t calls = fail_in_turn(
          round, [] {}, [&] { model.store().save(TENON_SPACE_WEIGHT, file); },
          [&] { CHECK(folder.content() == old); });
      CHECK(calls == lm::weight_specs(kTiny).size());
      CHECK(folder.content() != old);
      Store again(runtime());
      again.load(TENON_SPACE_WEIGHT, file);
      for (const lm::WeightSpec& w : lm::weight_specs(kTiny))
        CHECK(again.get<float>(TENON_SPACE_WEIGHT, w.name) ==
              model.store().get<float>(TENON_SPACE_WEIGHT, w.name));
    }
  }

  TEST_CASE("checkpoint: the one before survives each failure, and training goes on from either") {
    // Tokens of lm models are bytes: the folder says so.
    lm::Config config = kTiny;
    config.vocab = 256;
    const Folder folder;
    Store store(runtime());
    set_weights(store, config);
    Trainer trainer("cpu:0", store, config);
    lm::TrainingState state;
    state.total_steps = 10;
    state.batch = kBatch;
    state.lr = 3e-3;
    state.choices = R"({"some":["of 8x8\n2"]})";
    const auto save = [&] { lm::save_checkpoint(folder.path(), config, state, store); };
    const auto train_one = [&] {
      state.losses.emplace_back(state.done_steps, trainer.step(state.done_steps));
      ++state.done_steps;
    };
    const auto go_on = [&](int64_t step) {
      Store stored(runtime());
      REQUIRE(lm::load_model(folder.path(), stored).dim == config.dim);
      const lm::TrainingState loaded = lm::load_training(folder.path(), stored);
      CHECK(loaded.done_steps == step);
      CHECK(loaded.choices == state.choices);
      return Trainer("cpu:0", stored, config).step(step);
    };
    train_one();
    save();
    const auto old = folder.content();
    train_one();
    for (const Round& round : kRounds) {
      if (round.device != std::string("cpu:0")) continue;
      const uint64_t calls = fail_in_turn(
          round,
          [&] {
            if (folder.content() == old) return;
            FAIL("a save that failed has changed the folder");
          },
          save, [] {});
      CHECK(calls > 2 * lm::weight_specs(config).size());
      // The last round met no fault and saved; the next kind begins with the old one again.
      CHECK(go_on(2) == trainer.step(2));
      for (const auto& [name, bytes] : old)
        std::ofstream(fs::path(folder.path()) / name, std::ios::binary) << bytes;
      CHECK(go_on(1) == static_cast<float>(state.losses[1].second));
      static_cast<void>(lm::load_model(folder.path(), store));
      static_cast<void>(lm::load_training(folder.path(), store));
      trainer.step(1);  // where it was
    }
  }

  TEST_CASE("checkpoint: cut off between any two renames the folder is of one step") {
    lm::Config config = kTiny;
    config.vocab = 256;
    Store store(runtime());
    set_weights(store, config);
    Trainer trainer("cpu:0", store, config);
    lm::TrainingState state;
    state.total_steps = 10;
    state.batch = kBatch;
    state.lr = 3e-3;
    const Folder saved[2];  // of step 1, of step 2
    for (const Folder& folder : saved) {
      trainer.step(state.done_steps++);
      lm::save_checkpoint(folder.path(), config, state, store);
    }
    const auto old = saved[0].content(), fresh = saved[1].content();
    REQUIRE(old.size() == fresh.size());
    const auto weight = lm::weight_specs(config)[0].name;
    const auto check = [&](const Folder& folder, int64_t step) {
      Store stored(runtime());
      static_cast<void>(lm::load_model(folder.path(), stored));
      CHECK(lm::load_training(folder.path(), stored).done_steps == step);
      Store whole(runtime());
      static_cast<void>(lm::load_model(saved[step - 1].path(), whole));
      CHECK(stored.get<float>(TENON_SPACE_WEIGHT, weight) ==
            whole.get<float>(TENON_SPACE_WEIGHT, weight));
    };
    const auto put = [](const fs::path& folder, const std::string& name, const std::string& bytes) {
      fs::create_directories(folder);
      std::ofstream(folder / name, std::ios::binary) << bytes;
    };
    for (size_t count = 0; count <= fresh.size(); ++count) {
      CAPTURE(count);
      // So many files were written, and nothing renamed yet: the old save counts.
      const Folder writing;
      for (const auto& [name, bytes] : old) put(writing.path(), name, bytes);
      const fs::path staging = fs::path(writing.path()) / ".saving-abcdef";
      fs::create_directories(staging);
      size_t k = 0;
      for (const auto& [name, bytes] : fresh)
        if (k++ < count) put(staging, name, bytes.substr(0, bytes.size() / 2));
      check(writing, 1);
      // The rename happened, and so many files have taken their places: the new one does.
      const Folder moving;
      k = 0;
      for (const auto& [name, bytes] : fresh) {
        put(moving.path(), name, k < count ? bytes : old.at(name));
        if (k++ >= count) put(fs::path(moving.path()) / ".saved", name, bytes);
      }
      check(moving, 2);
      // The next save tidies both.
      for (const Folder* folder : {&writing, &moving}) {
        lm::save_checkpoint(folder->path(), config, state, store);
        CHECK(folder->content() == fresh);
        CHECK_FALSE(fs::exists(staging));
        CHECK_FALSE(fs::exists(fs::path(folder->path()) / ".saved"));
      }
    }
  }

  TEST_CASE("kinds and devices: only the calls that were asked for fail, and are counted") {
    Model model("cpu:0");
    runtime().set_fault({.calls = TENON_FAULT_RUN, .nth = 0});
    model.compile();
    model.step(0);
    CHECK(runtime().lift_fault() == 1);
    runtime().set_fault({.device = "adversary", .nth = 1});
    CHECK(model.step(1) == right_losses("cpu:0")[1]);
    CHECK(runtime().lift_fault() == 0);
    runtime().set_fault({.device = "cpu", .calls = TENON_FAULT_READ, .code = TENON_IO_ERROR});
    tenon_code code = TENON_OK;
    CHECK(says(error_of([&] { model.step(2); }, &code),
               {"plugin cpu: buffer_read: fault asked for, call 1 on cpu:0"}));
    CHECK(code == TENON_IO_ERROR);
    CHECK(runtime().lift_fault() == 1);
  }

  TEST_CASE(
      "device lost: every later call of that device fails, others work, lifting it ends that") {
    Model lost("cpu:0"), other("template:0");
    lost.compile();
    other.compile();
    runtime().set_fault({.device = "cpu:0", .calls = TENON_FAULT_RUN, .code = TENON_DEVICE_LOST});
    tenon_code code = TENON_OK;
    CHECK(says(error_of([&] { lost.step(0); }), {"run: fault asked for, call 1 on cpu:0"}));
    Model fresh("cpu:0");
    CHECK(says(error_of([&] { fresh.compile(); }, &code),
               {"plugin cpu: ", "fault asked for, cpu:0 is lost"}));
    CHECK(code == TENON_DEVICE_LOST);
    CHECK(other.step(0) == right_losses("template:0")[0]);
    runtime().lift_fault();
    bool refused = false;
    recover(lost, "cpu:0", 0, refused);
    CHECK(refused);
    fresh.compile();
    CHECK(fresh.step(0) == right_losses("cpu:0")[0]);
  }

  TEST_CASE("door: what cannot be asked for is refused") {
    const auto fault = [](const Fault& f) { return error_of([&] { runtime().set_fault(f); }); };
    CHECK(says(fault({.calls = 1u << 11}), {"calls 2048 are not known"}));
    CHECK(says(fault({.code = TENON_OK}), {"code 0 is no failure"}));
    CHECK(says(fault({.code = 99}), {"code 99 is no failure"}));
    tenon_status* status = tenon_runtime_fault(nullptr, nullptr, nullptr);
    CHECK(tenon_status_code(status) == TENON_INVALID_ARGUMENT);
    tenon_status_release(status);
    CHECK(runtime().lift_fault() == 0);
  }
}
