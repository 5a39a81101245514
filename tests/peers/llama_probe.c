/* SPDX-License-Identifier: Apache-2.0
 * What llama.cpp makes of a GGUF file, for llama_cpp.py, which compiles this file against the header of the llama.cpp at hand.
 *
 *   llama_probe logits MODEL IDS LOGITS COUNT CACHE  writes the logits behind each id, [ids, vocab] f32, and prints COUNT ids
 *                                                    that continue them greedily; the file needs no tokenizer. CACHE: f32 or f16
 *   llama_probe text MODEL PROMPT COUNT              prints the text of COUNT tokens that continue the text of the file PROMPT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

enum { kMost = 512 };

static void fail(const char* what) {
  fprintf(stderr, "llama_probe: %s\n", what);
  exit(1);
}

static void only_errors(enum ggml_log_level level, const char* text, void* user) {
  (void)user;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static struct llama_context* opened(const char* file, int without_tokenizer, int half_cache) {
  struct llama_model_kv_override overrides[2];
  memset(overrides, 0, sizeof overrides);
  overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_STR;
  strcpy(overrides[0].key, "tokenizer.ggml.model");
  strcpy(overrides[0].val_str, "none");
  struct llama_model_params m = llama_model_default_params();
  m.n_gpu_layers = 0;
  if (without_tokenizer) m.kv_overrides = overrides;
  struct llama_model* model = llama_model_load_from_file(file, m);
  if (!model) fail("cannot load the model");
  struct llama_context_params c = llama_context_default_params();
  c.n_ctx = c.n_batch = c.n_ubatch = kMost;
  if (llama_model_n_ctx_train(model) < kMost) c.n_ctx = (uint32_t)llama_model_n_ctx_train(model);
  c.n_threads = c.n_threads_batch = 2;
  c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  c.type_k = c.type_v = half_cache ? GGML_TYPE_F16 : GGML_TYPE_F32;
  struct llama_context* context = llama_init_from_model(model, c);
  if (!context) fail("cannot make a context");
  return context;
}

/* Reads tokens behind `at` others. Logits are kept for each of them. */
static void read_tokens(struct llama_context* context, const llama_token* tokens, int count,
                        int at) {
  struct llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = at + i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch)) fail("cannot decode");
  llama_batch_free(batch);
}

static llama_token likeliest(struct llama_context* context, int row, int vocab) {
  const float* logits = llama_get_logits_ith(context, row);
  int best = 0;
  for (int i = 1; i < vocab; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

static int numbers_of(const char* file, llama_token* out) {
  FILE* in = fopen(file, "r");
  if (!in) fail("cannot open the ids");
  int count = 0;
  while (count < kMost && fscanf(in, "%d", &out[count]) == 1) ++count;
  fclose(in);
  return count;
}

static int tokens_of(const char* file, const struct llama_vocab* vocab, llama_token* out) {
  static char text[1 << 16];
  FILE* in = fopen(file, "r");
  if (!in) fail("cannot open the prompt");
  const size_t size = fread(text, 1, sizeof text, in);
  fclose(in);
  const int count = llama_tokenize(vocab, text, (int32_t)size, out, kMost, true, false);
  if (count < 1) fail("the prompt has no tokens, or too many");
  return count;
}

int main(int argc, char** argv) {
  const int as_text = argc == 5 && strcmp(argv[1], "text") == 0;
  if (!as_text && argc != 7)
    fail("expected logits MODEL IDS LOGITS COUNT CACHE, or text MODEL PROMPT COUNT");
  llama_token tokens[2 * kMost];
  llama_log_set(only_errors, NULL);
  llama_backend_init();
  struct llama_context* context =
      opened(argv[2], !as_text, !as_text && strcmp(argv[6], "f16") == 0);
  const struct llama_vocab* vocab = llama_model_get_vocab(llama_get_model(context));
  const int size = llama_vocab_n_tokens(vocab);
  int length = as_text ? tokens_of(argv[3], vocab, tokens) : numbers_of(argv[3], tokens);
  const int first = length, more = atoi(argv[as_text ? 4 : 5]);
  if (first < 1 || more > kMost) fail("expected at least one id, and at most 512 more");
  read_tokens(context, tokens, length, 0);
  if (!as_text) {
    FILE* out = fopen(argv[4], "wb");
    for (int i = 0; out && i < length; ++i)
      fwrite(llama_get_logits_ith(context, i), sizeof(float), (size_t)size, out);
    if (!out || fclose(out)) fail("cannot write the logits");
  }
  for (int row = length - 1; length < first + more; row = 0) {
    tokens[length] = likeliest(context, row, size);
    read_tokens(context, tokens + length, 1, length);
    ++length;
  }
  for (int i = first; i < length; ++i) {
    char piece[512];
    if (as_text)
      fwrite(piece, 1,
             (size_t)llama_token_to_piece(vocab, tokens[i], piece, sizeof piece, 0, false), stdout);
    else
      printf("%s%d", i > first ? "," : "", tokens[i]);
  }
  return 0;
}
