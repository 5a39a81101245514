// SPDX-License-Identifier: Apache-2.0
// The continuation of a text by a language model, in C.
//
//   complete MODEL TEXT    MODEL: a GGUF file or a folder
#include <stdio.h>
#include <string.h>
#include <tenon/tenon_llm.h>

// Prints a failure. True if there is one.
static int failed(tenon_status* status) {
  if (!status) return 0;
  const tenon_str text = tenon_status_text(status);
  fprintf(stderr, "%.*s\n", (int)text.size, text.data);
  tenon_status_release(status);
  return 1;
}

static int complete(tenon_llm* llm, const char* prompt) {
  const tenon_str text = {prompt, strlen(prompt)};
  tenon_llm_tokens* tokens = NULL;
  if (failed(tenon_llm_tokenize(llm, text, TENON_LLM_ADD_SPECIAL, &tokens))) return 1;
  tenon_llm_generate_options options = {.struct_size = sizeof options};
  options.max_tokens = 40;
  tenon_llm_generation* generation = NULL;
  int bad = failed(tenon_llm_generate(llm, tenon_llm_tokens_data(tokens),
                                      tenon_llm_tokens_count(tokens), &options, &generation));
  tenon_llm_piece piece = {.struct_size = sizeof piece};
  while (!bad && piece.finish == TENON_LLM_RUNNING) {
    bad = failed(tenon_llm_generation_next(generation, &piece));
    if (!bad) printf("%.*s", (int)piece.text.size, piece.text.data), fflush(stdout);
  }
  printf("\n");
  tenon_llm_generation_destroy(generation);
  tenon_llm_tokens_destroy(tokens);
  return bad;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: complete MODEL TEXT\n"), 2;
  const tenon_str path = {argv[1], strlen(argv[1])};
  tenon_runtime* runtime = NULL;
  tenon_llm* llm = NULL;
  const int bad = failed(tenon_runtime_create(NULL, &runtime)) ||
                  failed(tenon_llm_open(runtime, path, NULL, &llm)) || complete(llm, argv[2]);
  tenon_llm_destroy(llm);
  tenon_runtime_destroy(runtime);
  return bad;
}
