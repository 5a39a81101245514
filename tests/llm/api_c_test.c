// SPDX-License-Identifier: Apache-2.0
// The C functions of language models: tenon_llm.h as C11, arguments that are wrong, structs of older callers.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/tenon_llm.h>

static int failures = 0;

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) ++failures, printf("line %d: %s\n", __LINE__, #condition); \
  } while (0)

static tenon_str str(const char* text) {
  const tenon_str s = {text, strlen(text)};
  return s;
}

// The call fails with this code, and its text has these words.
static void refused(tenon_status* status, tenon_code code, const char* words, int line) {
  const tenon_str text = tenon_status_text(status);
  char copy[1024];
  snprintf(copy, sizeof copy, "%.*s", (int)text.size, text.data);
  if (tenon_status_code(status) != code || !strstr(copy, words))
    ++failures, printf("line %d: expected '%s', got %u '%s'\n", line, words,
                       (unsigned)tenon_status_code(status), copy);
  tenon_status_release(status);
}
#define REFUSED(call, code, words) refused(call, code, words, __LINE__)

int main(void) {
  char path[4096];
  const char* folder = getenv("TENON_TINY");
  if (!folder) return printf("expected TENON_TINY\n"), 1;
  snprintf(path, sizeof path, "%s/tiny", folder);

  tenon_runtime* runtime = NULL;
  tenon_llm* llm = NULL;
  CHECK(!tenon_runtime_create(NULL, &runtime));
  tenon_llm_options options = {0};
  REFUSED(tenon_llm_open(runtime, str(path), &options, &llm), TENON_INVALID_ARGUMENT,
          "struct_size is 0");
  options.struct_size = sizeof options;
  options.device = str("cpu");
  options.products = 9;
  REFUSED(tenon_llm_open(runtime, str(path), &options, &llm), TENON_INVALID_ARGUMENT,
          "TENON_LLM_PRODUCTS_*, got 9");
  REFUSED(tenon_llm_open(NULL, str(path), NULL, &llm), TENON_INVALID_ARGUMENT, "runtime is NULL");
  REFUSED(tenon_llm_open(runtime, str(path), NULL, NULL), TENON_INVALID_ARGUMENT,
          "out_llm is NULL");
  options.products = 0, options.batch_invariant = 3;
  REFUSED(tenon_llm_open(runtime, str(path), &options, &llm), TENON_INVALID_ARGUMENT,
          "TENON_LLM_BATCH_INVARIANT_*, got 3");
  options.batch_invariant = TENON_LLM_BATCH_INVARIANT_YES, options.cache_tokens = -1;
  REFUSED(tenon_llm_open(runtime, str(path), &options, &llm), TENON_INVALID_ARGUMENT,
          "cache_tokens: expected 0 or more, got -1");
  // A caller whose struct ends behind `device`.
  options.struct_size = offsetof(tenon_llm_options, context);
  CHECK(!tenon_llm_open(runtime, str(path), &options, &llm));
  tenon_runtime_destroy(runtime);  // the model keeps it

  tenon_llm_facts facts = {0};
  facts.struct_size = offsetof(tenon_llm_facts, layers);
  facts.layers = -5;
  CHECK(!tenon_llm_get_facts(llm, &facts));
  CHECK(facts.vocab == 262 && facts.layers == -5);
  facts.struct_size = sizeof facts;
  CHECK(!tenon_llm_get_facts(llm, &facts));
  CHECK(facts.cache_tokens >= facts.context && facts.cache_tokens < facts.context + 96);
  REFUSED(tenon_llm_get_facts(llm, NULL), TENON_INVALID_ARGUMENT, "out_facts is NULL");
  REFUSED(tenon_llm_get_facts(NULL, &facts), TENON_INVALID_ARGUMENT, "llm is NULL");

  tenon_llm_tokens* tokens = NULL;
  const tenon_str nowhere = {NULL, 3};
  REFUSED(tenon_llm_tokenize(llm, nowhere, 0, &tokens), TENON_INVALID_ARGUMENT,
          "3 bytes is at NULL");
  REFUSED(tenon_llm_tokenize(llm, str("a"), 8, &tokens), TENON_INVALID_ARGUMENT, "flags");
  CHECK(!tenon_llm_tokenize(llm, str("<s>hello"), TENON_LLM_PARSE_SPECIAL, &tokens));
  CHECK(tenon_llm_tokens_count(tokens) == 6);
  CHECK(tenon_llm_tokens_data(tokens)[0] == 256);

  tenon_llm_generation* generation = NULL;
  tenon_llm_generate_options how = {0};
  how.struct_size = sizeof how;
  how.max_tokens = 5;
  how.flags = TENON_LLM_IGNORE_END;
  const int32_t beyond[2] = {262, 262};
  REFUSED(tenon_llm_generate(llm, NULL, 3, &how, &generation), TENON_INVALID_ARGUMENT,
          "prompt is NULL");
  REFUSED(tenon_llm_generate(llm, NULL, 0, &how, &generation), TENON_INVALID_ARGUMENT,
          "prompt of 1 to 512");
  REFUSED(tenon_llm_generate(llm, beyond, 1, &how, &generation), TENON_INVALID_ARGUMENT,
          "0 to 261, got 262");
  how.stop_count = 1;
  REFUSED(tenon_llm_generate(llm, tenon_llm_tokens_data(tokens), 6, &how, &generation),
          TENON_INVALID_ARGUMENT, "stops is NULL");
  how.stop_count = 0;
  how.temperature = -1;
  REFUSED(tenon_llm_generate(llm, tenon_llm_tokens_data(tokens), 6, &how, &generation),
          TENON_INVALID_ARGUMENT, "temperature");
  how.temperature = 0;
  how.slot = 1;
  REFUSED(tenon_llm_generate(llm, tenon_llm_tokens_data(tokens), 6, &how, &generation),
          TENON_INVALID_ARGUMENT, "slot from 0 to 0, got 1");
  how.slot = 0;
  CHECK(!tenon_llm_generate(llm, tenon_llm_tokens_data(tokens), 6, &how, &generation));
  tenon_llm_piece piece = {0};
  REFUSED(tenon_llm_generation_next(generation, &piece), TENON_INVALID_ARGUMENT,
          "struct_size is 0");
  piece.struct_size = sizeof piece;
  int made = 0;
  do {
    tenon_status* status = tenon_llm_generation_next(generation, &piece);
    CHECK(!status);
    if (status) break;
    ++made;
  } while (piece.finish == TENON_LLM_RUNNING);
  CHECK(made == 5 && piece.finish == TENON_LLM_MAX_TOKENS && piece.tokens == 5 &&
        piece.prompt_tokens == 6);
  CHECK(!tenon_llm_generation_next(generation, &piece));
  CHECK(piece.token == -1 && piece.text.size == 0 && piece.finish == TENON_LLM_MAX_TOKENS);

  static float logits[2 * 262];
  REFUSED(tenon_llm_logits(llm, tenon_llm_tokens_data(tokens), 2, logits, 5),
          TENON_INVALID_ARGUMENT, "expected 524, got 5");
  REFUSED(tenon_llm_logits(llm, tenon_llm_tokens_data(tokens), 2, NULL, 524),
          TENON_INVALID_ARGUMENT, "out_logits is NULL");
  CHECK(!tenon_llm_logits(llm, tenon_llm_tokens_data(tokens), 2, logits, 2 * 262));
  static float vectors[2 * 32];
  const uint64_t lengths[2] = {2, 4};
  tenon_llm_embed_options embed = {0};
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, vectors, 64),
          TENON_INVALID_ARGUMENT, "struct_size is 0");
  embed.struct_size = sizeof embed;
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, vectors, 63),
          TENON_INVALID_ARGUMENT, "number_count: expected 64, got 63");
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, NULL, 64),
          TENON_INVALID_ARGUMENT, "out_vectors is NULL");
  embed.pooling = 9;
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, vectors, 64),
          TENON_INVALID_ARGUMENT, "TENON_LLM_POOLING_*, got 9");
  embed.pooling = TENON_LLM_POOLING_LAST;
  embed.flags = 2;
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, vectors, 64),
          TENON_INVALID_ARGUMENT, "flags");
  embed.flags = 0;
  embed.slot = 1;
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, vectors, 64),
          TENON_INVALID_ARGUMENT, "slot from 0 to 0, got 1");
  embed.slot = 0;
  const uint64_t empty[2] = {2, 0}, many[2] = {2, UINT64_MAX};
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), empty, 2, &embed, vectors, 64),
          TENON_INVALID_ARGUMENT, "text 1: expected 1 to 512 tokens");
  REFUSED(tenon_llm_embed(llm, NULL, empty + 1, 1, &embed, vectors, 32), TENON_INVALID_ARGUMENT,
          "text 0: expected 1 to 512 tokens");
  REFUSED(tenon_llm_embed(llm, NULL, lengths, 1, &embed, vectors, 32), TENON_INVALID_ARGUMENT,
          "tokens is NULL");
  REFUSED(tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), many, 2, &embed, vectors, 64),
          TENON_INVALID_ARGUMENT, "counts: expected at most 512");
  REFUSED(tenon_llm_embed(llm, beyond, lengths, 1, NULL, vectors, 32), TENON_INVALID_ARGUMENT,
          "text 0: expected token ids from 0 to 261, got");
  CHECK(!tenon_llm_embed(llm, tenon_llm_tokens_data(tokens), lengths, 2, &embed, vectors, 64));
  CHECK(!tenon_llm_embed(llm, NULL, NULL, 0, NULL, NULL, 0));
  double squares = 0;
  for (int i = 32; i < 64; ++i) squares += vectors[i] * vectors[i];
  CHECK(squares > 0.9999 && squares < 1.0001);

  const int64_t slots[1] = {0};
  const uint64_t counts[1] = {UINT64_MAX};
  REFUSED(tenon_llm_step(llm, slots, counts, 1, tenon_llm_tokens_data(tokens), NULL, NULL, 0),
          TENON_INVALID_ARGUMENT, "counts: expected at most 512");
  REFUSED(tenon_llm_step(llm, NULL, counts, 1, NULL, NULL, NULL, 0), TENON_INVALID_ARGUMENT,
          "slots is NULL");
  CHECK(!tenon_llm_step(llm, NULL, NULL, 0, NULL, NULL, NULL, 0));
  int64_t length = -1;
  CHECK(!tenon_llm_length(llm, 0, &length) && length == 0);
  REFUSED(tenon_llm_length(llm, 5, &length), TENON_INVALID_ARGUMENT, "got 5");
  REFUSED(tenon_llm_truncate(llm, 0, -1, NULL), TENON_INVALID_ARGUMENT, "cannot keep -1");

  tenon_llm_decoder* decoder = NULL;
  tenon_str text = {NULL, 0};
  CHECK(!tenon_llm_decoder_create(llm, 0, &decoder));
  REFUSED(tenon_llm_decoder_push(decoder, -7, &text), TENON_INVALID_ARGUMENT, "-7");
  CHECK(!tenon_llm_decoder_push(decoder, tenon_llm_tokens_data(tokens)[1], &text) &&
        text.size == 1 && text.data[0] == 'h');

  // Objects go in any order, and nothing at all is fine.
  tenon_llm_destroy(llm);
  CHECK(!tenon_llm_decoder_finish(decoder, &text) && text.size == 0);
  tenon_llm_decoder_destroy(decoder);
  tenon_llm_generation_destroy(generation);
  tenon_llm_tokens_destroy(tokens);
  tenon_llm_destroy(NULL);
  tenon_llm_decoder_destroy(NULL);
  tenon_llm_generation_destroy(NULL);
  tenon_llm_tokens_destroy(NULL);
  tenon_llm_cancel(NULL);
  CHECK(tenon_llm_tokens_data(NULL) == NULL && tenon_llm_tokens_count(NULL) == 0);
  return failures != 0;
}
