// SPDX-License-Identifier: Apache-2.0
// C functions for answers in the making.
#include "llm/api/door.hpp"

using namespace tenon::llm;

namespace {

GenerationOptions options_of(const tenon_llm_generate_options& o) {
  check_flags(o.flags, TENON_LLM_IGNORE_END | TENON_LLM_LOGPROBS);
  GenerationOptions out;
  out.slot = o.slot;
  out.tokens = o.max_tokens;
  out.ignore_end = (o.flags & TENON_LLM_IGNORE_END) != 0;
  if (o.stop_count) need(o.stops, "stops");
  for (uint32_t i = 0; i < o.stop_count; ++i) out.stop.push_back(copy(o.stops[i]));
  out.json_schema = copy(o.json_schema);
  out.regex = copy(o.regex);
  SampleOptions& s = out.sampling;
  const auto tokens =
      numbers<int64_t>(o.logit_bias_tokens, o.logit_bias_count, "logit_bias_tokens");
  const auto biases = numbers<float>(o.logit_biases, o.logit_bias_count, "logit_biases");
  for (size_t i = 0; i < tokens.size(); ++i) s.logit_bias.emplace_back(tokens[i], biases[i]);
  s.penalty_window = o.penalty_window ? o.penalty_window : -1;
  s.repetition_penalty = o.repetition_penalty != 0 ? o.repetition_penalty : 1;
  s.presence_penalty = o.presence_penalty;
  s.frequency_penalty = o.frequency_penalty;
  s.top_k = o.top_k;
  s.top_p = o.top_p != 0 ? o.top_p : 1;
  s.min_p = o.min_p;
  s.temperature = o.temperature;
  s.seed = o.seed;
  s.top_logprobs = o.top_logprobs || o.flags & TENON_LLM_LOGPROBS ? o.top_logprobs : int64_t{-1};
  if (o.progress)
    out.progress = [call = o.progress, user = o.progress_user](int64_t read, int64_t total) {
      return call(user, static_cast<uint64_t>(read), static_cast<uint64_t>(total)) == 0;
    };
  return out;
}

constexpr uint32_t kFinish[] = {TENON_LLM_RUNNING,  TENON_LLM_END_TOKEN,  TENON_LLM_STOP_STRING,
                                TENON_LLM_COMPLETE, TENON_LLM_MAX_TOKENS, TENON_LLM_CONTEXT_FULL,
                                TENON_LLM_CANCELLED};
static_assert(GenerationPiece::end_token == 1 && GenerationPiece::stop_string == 2 &&
              GenerationPiece::complete == 3 && GenerationPiece::length == 4 &&
              GenerationPiece::context_full == 5 && GenerationPiece::cancelled == 6);

}  // namespace

tenon_status* tenon_llm_generate(tenon_llm* llm, const int32_t* prompt, uint64_t count,
                                 const tenon_llm_generate_options* options,
                                 tenon_llm_generation** out_generation) {
  return door("tenon_llm_generate", [&] {
    need(llm, "llm"), need(out_generation, "out_generation");
    *out_generation =
        new tenon_llm_generation{Generation(llm->session, numbers<int64_t>(prompt, count, "prompt"),
                                            options_of(taken(options, "options")))};
  });
}

void tenon_llm_generation_destroy(tenon_llm_generation* generation) { delete generation; }

tenon_status* tenon_llm_generation_next(tenon_llm_generation* generation,
                                        tenon_llm_piece* out_piece) {
  return door("tenon_llm_generation_next", [&] {
    tenon_llm_generation& g = need(generation, "generation");
    check_struct_size(need(out_piece, "out_piece").struct_size, "out_piece");
    const GenerationPiece& p = g.generation.next();
    tenon_llm_piece out{};
    out.text = tenon::detail::str(p.text);
    out.token = static_cast<int32_t>(p.token);
    out.finish = kFinish[p.finish];
    out.logprob = p.logprob;
    out.stop = p.stop < 0 ? TENON_NONE : static_cast<uint32_t>(p.stop);
    out.prompt_tokens = static_cast<uint64_t>(p.prompt_tokens);
    out.cached_tokens = static_cast<uint64_t>(p.cached_tokens);
    out.tokens = static_cast<uint64_t>(p.tokens);
    g.top_tokens.clear(), g.top_logprobs.clear();
    for (const TokenLogprob& t : p.top) {
      g.top_tokens.push_back(static_cast<int32_t>(t.token));
      g.top_logprobs.push_back(t.logprob);
    }
    out.top_tokens = g.top_tokens.data();
    out.top_logprobs = g.top_logprobs.data();
    out.top_count = g.top_tokens.size();
    give(*out_piece, out, "out_piece");
  });
}

void tenon_llm_generation_cancel(tenon_llm_generation* generation) {
  if (generation) generation->generation.cancel();
}

void tenon_llm_cancel(tenon_llm* llm) {
  if (llm) llm->session->cancel();
}
