// SPDX-License-Identifier: Apache-2.0
// A model of the engine, served to many requests at once.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "llm/embedding.hpp"
#include "llm/engine.hpp"
#include "llm/model_text.hpp"
#include "llm/serve/drawing.hpp"
#include "llm/serve/scheduler.hpp"

namespace tenon::llm::serve {

class EngineServed final : public Served {
 public:
  // pooling: of embeddings; absent: the model's own.
  EngineServed(std::string name, Engine engine, ModelText text, SchedulerLimits limits,
               std::optional<Pooling> pooling = {});
  ~EngineServed() override;

  std::string name() const override { return name_; }
  int64_t context() const override;
  int64_t vocabulary() const override;
  int64_t created() const override { return created_; }
  int64_t dim() const override;
  std::vector<int32_t> tokenize(const std::string& text, bool special) const override;
  std::string detokenize(const std::vector<int32_t>& tokens) const override;
  std::vector<int32_t> chat_tokens(const nlohmann::ordered_json& messages,
                                   const nlohmann::ordered_json& tools,
                                   const nlohmann::ordered_json& variables) const override;
  std::unique_ptr<Answer> submit(Wanted wanted) override;
  ServedNumbers numbers() const override { return scheduler_->numbers(); }

  // Ends all answers with an error of this text, and refuses new ones.
  void stop(const std::string& why) { scheduler_->stop(why); }

 private:
  class Slots;
  std::string name_;
  int64_t created_;
  Engine engine_;
  ModelText text_;
  SamplingSource sampling_;
  std::optional<Pooling> pooling_;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace tenon::llm::serve
