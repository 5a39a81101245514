// SPDX-License-Identifier: Apache-2.0
// C functions for models, their text, and steps of several sequences.
#include "llm/api/door.hpp"
#include "llm/arch/step.hpp"
#include "llm/json_text.hpp"
#include "llm/text/unicode.hpp"

using namespace tenon::llm;

namespace tenon::llm {

tenon_status* status_of_current_exception(const char* where) noexcept {
  const auto made = [where](tenon_code code, const char* what, const tenon_status_place* place) {
    try {
      const std::string text = std::string(where) + ": " + what;
      return tenon_status_create(code, detail::str(text), place);
    } catch (...) {
      return tenon_status_create(TENON_OUT_OF_MEMORY, {}, nullptr);
    }
  };
  try {
    throw;
  } catch (const Error& e) {
    const FailurePlace& at = e.place();
    tenon_status_place place{};
    place.struct_size = sizeof place;
    place.node = detail::str(at.node);
    place.op = detail::str(at.op);
    place.device = detail::str(at.device);
    place.run_id = at.run_id;
    place.index = at.index;
    place.step = at.step;
    place.retryable = at.retryable;
    return made(e.code(), e.what(), &place);
  } catch (const std::bad_alloc&) {
    return made(TENON_OUT_OF_MEMORY, "host memory ran out", nullptr);
  } catch (const std::exception& e) {
    return made(TENON_INTERNAL, e.what(), nullptr);
  } catch (...) {
    return made(TENON_INTERNAL, "something that is no exception of ours was thrown", nullptr);
  }
}

}  // namespace tenon::llm

namespace {

Products products_of(uint32_t products) {
  switch (products) {
    case TENON_LLM_PRODUCTS_DEVICE:
      return Products::device;
    case TENON_LLM_PRODUCTS_F32:
      return Products::f32;
    case TENON_LLM_PRODUCTS_INT8:
      return Products::int8;
    case TENON_LLM_PRODUCTS_COMPUTE:
      return Products::compute;
    default:
      refuse("products: expected TENON_LLM_PRODUCTS_*, got " + std::to_string(products));
  }
}

std::optional<bool> invariance_of(uint32_t batch_invariant) {
  switch (batch_invariant) {
    case TENON_LLM_BATCH_INVARIANT_AUTO:
      return std::nullopt;
    case TENON_LLM_BATCH_INVARIANT_NO:
      return false;
    case TENON_LLM_BATCH_INVARIANT_YES:
      return true;
    default:
      refuse("batch_invariant: expected TENON_LLM_BATCH_INVARIANT_*, got " +
             std::to_string(batch_invariant));
  }
}

tenon_dtype dtype_of(const char* option, tenon_dtype dtype, bool may_be_blocks) {
  constexpr tenon_dtype kPlain[] = {TENON_DTYPE_NONE, tenon::f32, tenon::f16, tenon::bf16};
  if (std::ranges::find(kPlain, dtype) == std::end(kPlain) &&
      !(may_be_blocks && dtype == TENON_DTYPE_Q8_0))
    refuse(std::string(option) + ": expected f32, f16" +
           (may_be_blocks ? ", bf16 or q8_0" : " or bf16") + ", got dtype " +
           std::to_string(dtype));
  return dtype;
}

EngineOptions options_of(const tenon_llm_options& o) {
  EngineOptions out;
  if (o.device.size) out.device = copy(o.device);
  if (o.context < 0) refuse("context: expected 0 or more, got " + std::to_string(o.context));
  out.context = o.context;
  if (o.slots) out.slots = o.slots;
  out.products = products_of(o.products);
  out.compute = dtype_of("compute", o.compute, false);
  out.cache = dtype_of("cache", o.cache, true);
  if (o.cache_tokens < 0)
    refuse("cache_tokens: expected 0 or more, got " + std::to_string(o.cache_tokens));
  out.cache_tokens = o.cache_tokens;
  out.batch_invariant = invariance_of(o.batch_invariant);
  return out;
}

// By Pooling.
constexpr uint32_t kPoolings[] = {TENON_LLM_POOLING_MEAN, TENON_LLM_POOLING_CLS,
                                  TENON_LLM_POOLING_LAST};

EmbedOptions options_of(const tenon_llm_embed_options& o) {
  check_flags(o.flags, TENON_LLM_NOT_NORMALIZED);
  EmbedOptions out;
  out.slot = o.slot;
  if (o.pooling != TENON_LLM_POOLING_MODEL) {
    const auto* at = std::ranges::find(kPoolings, o.pooling);
    if (at == std::end(kPoolings))
      refuse("pooling: expected TENON_LLM_POOLING_*, got " + std::to_string(o.pooling));
    out.pooling = static_cast<Pooling>(at - kPoolings);
  }
  out.normalize = (o.flags & TENON_LLM_NOT_NORMALIZED) == 0;
  if (o.progress)
    out.progress = [call = o.progress, user = o.progress_user](int64_t read, int64_t total) {
      return call(user, static_cast<uint64_t>(read), static_cast<uint64_t>(total)) == 0;
    };
  return out;
}

Session& session_of(const tenon_llm* llm) { return *need(llm, "llm").session; }

tenon::llm::ChatJson json_of(tenon_str text, const char* what, tenon::llm::ChatJson otherwise) {
  if (!text.size) return otherwise;
  std::string storage;
  return parse_json(sanitize(view(text), storage), what);
}

const Tokenizer& tokenizer_of(const tenon_llm* llm) { return session_of(llm).text().tokenizer(); }

// Sequences without a token may be at NULL; what reads them says which is empty.
void need_tokens(const int32_t* tokens, const uint64_t* counts, uint32_t sequences) {
  if (std::any_of(counts, counts + sequences, [](uint64_t count) { return count > 0; }))
    need(tokens, "tokens");
}

}  // namespace

// ---- Models

tenon_status* tenon_llm_open(tenon_runtime* runtime, tenon_str path,
                             const tenon_llm_options* options, tenon_llm** out_llm) {
  return door("tenon_llm_open", [&] {
    need(runtime, "runtime"), need(out_llm, "out_llm");
    const EngineOptions o = options_of(taken(options, "options"));
    tenon_runtime* shared = nullptr;
    tenon::detail::check(tenon_runtime_share(runtime, &shared));
    auto own = tenon::Runtime::adopt(shared);
    *out_llm = new tenon_llm{std::make_shared<Session>(std::move(own), copy(path), o)};
  });
}

void tenon_llm_destroy(tenon_llm* llm) { delete llm; }

tenon_status* tenon_llm_get_facts(const tenon_llm* llm, tenon_llm_facts* out_facts) {
  return door("tenon_llm_get_facts", [&] {
    const Session& s = session_of(llm);
    const ModelConfig& c = s.config();
    tenon_llm_facts f{};
    f.architecture = tenon::detail::str(c.architecture->model_type);
    f.vocab = c.vocab;
    f.layers = c.layers;
    f.dim = c.dim;
    f.context = s.context();
    f.model_context = c.context;
    f.slots = s.slots();
    f.end_tokens = s.vocab().end_tokens().data();
    f.end_token_count = s.vocab().end_tokens().size();
    f.has_tokenizer = s.has_text();
    f.has_chat_template = s.has_text() && s.text().has_chat();
    f.bos_token = s.has_text() ? s.text().tokenizer().bos().value_or(-1) : -1;
    f.recurrent = c.recurrent();
    f.cache_tokens = s.cache_tokens();
    f.pooling = c.other_pooling.empty() ? kPoolings[static_cast<size_t>(c.pooling)] : 0;
    give(need(out_facts, "out_facts"), f, "out_facts");
  });
}

// ---- Text and tokens

const int32_t* tenon_llm_tokens_data(const tenon_llm_tokens* tokens) {
  return tokens ? tokens->ids.data() : nullptr;
}
uint64_t tenon_llm_tokens_count(const tenon_llm_tokens* tokens) {
  return tokens ? tokens->ids.size() : 0;
}
void tenon_llm_tokens_destroy(tenon_llm_tokens* tokens) { delete tokens; }

tenon_status* tenon_llm_tokenize(const tenon_llm* llm, tenon_str text, uint32_t flags,
                                 tenon_llm_tokens** out_tokens) {
  return door("tenon_llm_tokenize", [&] {
    need(out_tokens, "out_tokens");
    check_flags(flags, TENON_LLM_ADD_SPECIAL | TENON_LLM_PARSE_SPECIAL);
    const EncodeOptions options{.add_special = (flags & TENON_LLM_ADD_SPECIAL) != 0,
                                .parse_special = (flags & TENON_LLM_PARSE_SPECIAL) != 0};
    *out_tokens = new tenon_llm_tokens{tokenizer_of(llm).encode(view(text), options)};
  });
}

tenon_status* tenon_llm_detokenize(const tenon_llm* llm, const int32_t* tokens, uint64_t count,
                                   uint32_t flags, tenon_text** out_text) {
  return door("tenon_llm_detokenize", [&] {
    need(out_text, "out_text");
    check_flags(flags, TENON_LLM_SKIP_SPECIAL);
    if (count) need(tokens, "tokens");
    *out_text =
        new_text(tokenizer_of(llm).decode({tokens, count}, (flags & TENON_LLM_SKIP_SPECIAL) != 0));
  });
}

tenon_status* tenon_llm_decoder_create(const tenon_llm* llm, uint32_t flags,
                                       tenon_llm_decoder** out_decoder) {
  return door("tenon_llm_decoder_create", [&] {
    need(out_decoder, "out_decoder");
    check_flags(flags, TENON_LLM_SKIP_SPECIAL);
    const Tokenizer& tokenizer = tokenizer_of(llm);
    *out_decoder = new tenon_llm_decoder{
        llm->session, Detokenizer(tokenizer, (flags & TENON_LLM_SKIP_SPECIAL) != 0), flags, {}};
  });
}
void tenon_llm_decoder_destroy(tenon_llm_decoder* decoder) { delete decoder; }

tenon_status* tenon_llm_decoder_push(tenon_llm_decoder* decoder, int32_t token,
                                     tenon_str* out_text) {
  return door("tenon_llm_decoder_push", [&] {
    tenon_llm_decoder& d = need(decoder, "decoder");
    need(out_text, "out_text");
    d.text = d.words.push(token);
    *out_text = tenon::detail::str(d.text);
  });
}

tenon_status* tenon_llm_decoder_finish(tenon_llm_decoder* decoder, tenon_str* out_text) {
  return door("tenon_llm_decoder_finish", [&] {
    tenon_llm_decoder& d = need(decoder, "decoder");
    need(out_text, "out_text");
    d.text = d.words.flush();
    d.words = Detokenizer(d.session->text().tokenizer(), (d.flags & TENON_LLM_SKIP_SPECIAL) != 0);
    *out_text = tenon::detail::str(d.text);
  });
}

tenon_status* tenon_llm_apply_chat_template(const tenon_llm* llm, const tenon_llm_chat* chat,
                                            tenon_text** out_text) {
  return door("tenon_llm_apply_chat_template", [&] {
    need(chat, "chat"), need(out_text, "out_text");
    const tenon_llm_chat c = taken(chat, "chat");
    ChatOptions options;
    options.messages = json_of(c.messages, "messages", ChatJson::array());
    options.tools = json_of(c.tools, "tools", nullptr);
    options.extra = json_of(c.variables, "variables", ChatJson::object());
    options.add_generation_prompt = c.closed == 0;
    if (!options.messages.is_array()) refuse("messages: expected a list of objects");
    if (!options.tools.is_array() && !options.tools.is_null())
      refuse("tools: expected a list of objects");
    if (!options.extra.is_object()) refuse("variables: expected an object");
    *out_text = new_text(session_of(llm).text().chat_text(options));
  });
}

// ---- Embeddings

tenon_status* tenon_llm_embed(tenon_llm* llm, const int32_t* tokens, const uint64_t* counts,
                              uint32_t text_count, const tenon_llm_embed_options* options,
                              float* out_vectors, uint64_t number_count) {
  return door("tenon_llm_embed", [&] {
    Session& s = session_of(llm);
    if (text_count) need(counts, "counts"), need(out_vectors, "out_vectors");
    need_tokens(tokens, counts, text_count);
    if (const uint64_t expected = text_count * static_cast<uint64_t>(s.config().dim);
        number_count != expected)
      refuse("number_count: expected " + std::to_string(expected) + ", got " +
             std::to_string(number_count));
    std::vector<std::vector<int64_t>> texts;
    for (uint32_t i = 0; i < text_count; ++i) {
      if (counts[i] > static_cast<uint64_t>(s.context()))
        refuse("counts: expected at most " + std::to_string(s.context()) +
               " tokens for a text, the context, got " + std::to_string(counts[i]));
      texts.emplace_back(tokens, tokens + counts[i]);
      tokens += counts[i];
    }
    std::ranges::copy(s.embed(texts, options_of(taken(options, "options"))), out_vectors);
  });
}

// ---- Several sequences

tenon_status* tenon_llm_step(tenon_llm* llm, const int64_t* slots, const uint64_t* counts,
                             uint32_t slot_count, const int32_t* tokens, int32_t* out_next,
                             float* out_logits, uint64_t logit_count) {
  return door("tenon_llm_step", [&] {
    Session& s = session_of(llm);
    const auto vocab = static_cast<uint64_t>(s.config().vocab);
    if (slot_count) need(slots, "slots"), need(counts, "counts");
    need_tokens(tokens, counts, slot_count);
    const uint64_t expected = out_logits ? slot_count * vocab : 0;
    if (logit_count != expected)
      refuse("logit_count: expected " + std::to_string(expected) + ", got " +
             std::to_string(logit_count));
    std::vector<Engine::Piece> pieces;
    for (uint32_t i = 0; i < slot_count; ++i) {
      if (counts[i] > static_cast<uint64_t>(s.context()))
        refuse("counts: expected at most " + std::to_string(s.context()) +
               " tokens for a slot, the context, got " + std::to_string(counts[i]));
      pieces.push_back({slots[i], {tokens, tokens + counts[i]}});
      tokens += counts[i];
    }
    const std::vector<Engine::Next> next = s.step(pieces, out_logits != nullptr);
    for (size_t i = 0; i < next.size(); ++i) {
      if (out_next) out_next[i] = static_cast<int32_t>(next[i].token);
      if (out_logits) std::ranges::copy(next[i].logits, out_logits + i * vocab);
    }
  });
}

tenon_status* tenon_llm_logits(tenon_llm* llm, const int32_t* tokens, uint64_t count,
                               float* out_logits, uint64_t logit_count) {
  return door("tenon_llm_logits", [&] {
    Session& s = session_of(llm);
    const std::vector<int64_t> ids = numbers<int64_t>(tokens, count, "tokens");
    if (count) need(out_logits, "out_logits");
    if (const uint64_t expected = count * static_cast<uint64_t>(s.config().vocab);
        logit_count != expected)
      refuse("logit_count: expected " + std::to_string(expected) + ", got " +
             std::to_string(logit_count));
    std::ranges::copy(s.all_logits(ids), out_logits);
  });
}

tenon_status* tenon_llm_length(const tenon_llm* llm, int64_t slot, int64_t* out_length) {
  return door("tenon_llm_length",
              [&] { need(out_length, "out_length") = session_of(llm).length(slot); });
}

tenon_status* tenon_llm_truncate(tenon_llm* llm, int64_t slot, int64_t length,
                                 int64_t* out_length) {
  return door("tenon_llm_truncate", [&] {
    const int64_t left = session_of(llm).truncate(slot, length);
    if (out_length) *out_length = left;
  });
}
