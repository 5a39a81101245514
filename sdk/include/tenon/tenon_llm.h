// SPDX-License-Identifier: Apache-2.0
//
// Language models: open a Hugging Face folder or a GGUF file, and generate text with it. C11, over
// tenon.h; apps link libtenon-llm and libtenon. In C++: llm.hpp.
//
// Objects
//
//   tenon_llm             an open model: weights on a device, tokenizer, chat template, and slots,
//                         each of which holds one sequence of tokens
//   tenon_llm_generation  the continuation of a prompt, in the making
//   tenon_llm_decoder     turns tokens into text, one by one
//   tenon_llm_tokens      a list of tokens that the API made for the caller, who destroys it
//
// Ownership, errors and strings are as in tenon.h: *_create and *_open transfer ownership to the
// caller; *_destroy takes it back and accepts NULL. An object keeps alive what it depends on.
//
// Threads
//
//   A model, with its generations, is used by one thread at a time. Functions marked [any-thread]
//   may be called by many threads, also while another one generates. A decoder is used by one
//   thread at a time, apart from the others.
//
// Tokens
//
//   A token is an id from 0 to `vocab` - 1 (tenon_llm_facts). Token ids are int32_t.

// The layout is made by hand:
// clang-format off
#ifndef TENON_TENON_LLM_H
#define TENON_TENON_LLM_H

#include "tenon.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenon_llm tenon_llm;
typedef struct tenon_llm_generation tenon_llm_generation;
typedef struct tenon_llm_decoder tenon_llm_decoder;
typedef struct tenon_llm_tokens tenon_llm_tokens;


// ---- Models -------------------------------------------------------------------------------------

// tenon_llm_options::products: how activations meet weights in blocks.
#define TENON_LLM_PRODUCTS_DEVICE  UINT32_C(0)  // INT8 on a cpu, COMPUTE elsewhere (or F32: see
                                                // batch_invariant)
#define TENON_LLM_PRODUCTS_F32     UINT32_C(1)  // as precise as in f32
#define TENON_LLM_PRODUCTS_INT8    UINT32_C(2)  // activations become blocks of 8-bit integers,
                                                // except beside weights in e4m3, whose
                                                // products are in f32
#define TENON_LLM_PRODUCTS_COMPUTE UINT32_C(3)  // weights may be rounded to the dtype of activations

// tenon_llm_options::batch_invariant: whether the logits of a sequence must have the same bits
// whichever other sequences run at the same time, and however its prompt is cut. On a cpu they have,
// if activations are f32, without experts and recurrent layers. Other devices do what they can
// (TENON_COMPILE_BATCH_INVARIANT), which costs time, and much with weights in blocks.
//
//   AUTO  yes, if some device has batch invariant kernels for all of the model: activations and the
//         cache are f16 or both are bf16, and products do not round; no recurrent layers, experts,
//         alibi, latent attention, or heads that have more than 128 elements or no multiple of 8
//   YES   also makes PRODUCTS_DEVICE mean PRODUCTS_F32 on other devices than a cpu, where
//         PRODUCTS_COMPUTE is refused for weights in blocks (TENON_INVALID_ARGUMENT)
#define TENON_LLM_BATCH_INVARIANT_AUTO UINT32_C(0)
#define TENON_LLM_BATCH_INVARIANT_NO   UINT32_C(1)
#define TENON_LLM_BATCH_INVARIANT_YES  UINT32_C(2)

// Zero-filled options are the defaults.
typedef struct tenon_llm_options {
  uint64_t struct_size;
  tenon_str device;           // "cpu", "cuda:0"; empty = the best one
  int64_t context;            // most tokens of a sequence; 0 = 4096, or the model's limit if less
  int64_t slots;              // sequences that are kept at the same time; 0 = 1
  uint32_t products;          // TENON_LLM_PRODUCTS_*
  tenon_dtype compute;        // activations: f32, f16 or bf16. TENON_DTYPE_NONE = f32 on a cpu,
                              // elsewhere the dtype of the weights
  tenon_dtype cache;          // the cache of keys and values: f32, f16, bf16, or TENON_DTYPE_Q8_0 for
                              // heads of a multiple of 32 numbers, on a cpu, and on cuda beside
                              // activations of f16 or bf16. TENON_DTYPE_NONE = compute; if that is
                              // TENON_DTYPE_NONE, too, on a cpu f16 unless the weights are f32
  int64_t cache_tokens;       // tokens that the cache has room for, of all slots together: from the
                              // context to slots * context; 0 = slots * context. Less than that is
                              // possible where slots share blocks of 96 tokens, of which each sequence
                              // takes whole ones: on a cpu and on cuda, but not for recurrent
                              // models. A call that finds no room fails with TENON_OUT_OF_MEMORY
  uint32_t batch_invariant;   // TENON_LLM_BATCH_INVARIANT_*
  uint32_t reserved0;
} tenon_llm_options;

// Opens a model: a folder with config.json and safetensors files, or a GGUF file (of several, the
// first). Reads all weights and compiles the first graph, so it takes as long as the file is large.
// options may be NULL.
//
// Fails with TENON_NOT_FOUND or TENON_IO_ERROR for files, TENON_UNSUPPORTED for an architecture that
// tenon does not have, TENON_CORRUPT for files that contradict themselves, TENON_OUT_OF_MEMORY if
// the device is too small.
TENON_API tenon_status* tenon_llm_open(tenon_runtime* runtime, tenon_str path,
                                       const tenon_llm_options* options, tenon_llm** out_llm);

TENON_API void tenon_llm_destroy(tenon_llm* llm);

// What is known of an open model. All pointers live as long as the model.
typedef struct tenon_llm_facts {
  uint64_t struct_size;
  tenon_str architecture;     // model_type of config.json: "llama"
  int64_t vocab;              // number of logits; tokens are below it
  int64_t layers, dim;
  int64_t context;            // most tokens of a sequence
  int64_t model_context;      // the same, as the model was made for
  int64_t slots;
  const int32_t* end_tokens;  // they end an answer
  uint64_t end_token_count;
  uint32_t has_tokenizer;     // 0: functions with text fail, tokens go in and out
  uint32_t has_chat_template;
  int32_t bos_token;          // -1 = none
  uint32_t recurrent;         // 1: a slot cannot forget its last tokens, only all of them
  uint32_t pooling;           // of tenon_llm_embed(), by the model's files: TENON_LLM_POOLING_MEAN,
                              // CLS or LAST; 0 = one that tenon does not have
  uint32_t reserved0;
  int64_t cache_tokens;       // that the cache has room for, of all slots together
} tenon_llm_facts;

// [any-thread]
TENON_API tenon_status* tenon_llm_get_facts(const tenon_llm* llm, tenon_llm_facts* out_facts);


// ---- Text and tokens ----------------------------------------------------------------------------
//
// Text is UTF-8; bytes that are no UTF-8 count as U+FFFD. If the model has no tokenizer that tenon can
// read, functions of this section fail with the reason: TENON_NOT_FOUND for a folder without
// tokenizer.json. [any-thread]

TENON_API const int32_t* tenon_llm_tokens_data(const tenon_llm_tokens* tokens);
TENON_API uint64_t tenon_llm_tokens_count(const tenon_llm_tokens* tokens);
TENON_API void tenon_llm_tokens_destroy(tenon_llm_tokens* tokens);

// Flags of tenon_llm_tokenize().
#define TENON_LLM_ADD_SPECIAL   UINT32_C(1)  // add what the model expects around a text, such as <s>
#define TENON_LLM_PARSE_SPECIAL UINT32_C(2)  // special tokens that the text spells out are tokens

TENON_API tenon_status* tenon_llm_tokenize(const tenon_llm* llm, tenon_str text, uint32_t flags,
                                           tenon_llm_tokens** out_tokens);

// Flags of tenon_llm_detokenize() and tenon_llm_decoder_create().
#define TENON_LLM_SKIP_SPECIAL UINT32_C(1)   // special tokens have no text

TENON_API tenon_status* tenon_llm_detokenize(const tenon_llm* llm, const int32_t* tokens,
                                             uint64_t count, uint32_t flags,
                                             tenon_text** out_text);

// A decoder gives text as tokens come, in complete characters.
TENON_API tenon_status* tenon_llm_decoder_create(const tenon_llm* llm, uint32_t flags,
                                                 tenon_llm_decoder** out_decoder);
TENON_API void tenon_llm_decoder_destroy(tenon_llm_decoder* decoder);

// Returns the characters that the token completes, possibly none. They live until the next call with
// this decoder.
TENON_API tenon_status* tenon_llm_decoder_push(tenon_llm_decoder* decoder, int32_t token,
                                               tenon_str* out_text);

// Returns what is left at the end, U+FFFD for an incomplete character. The decoder is as new then.
TENON_API tenon_status* tenon_llm_decoder_finish(tenon_llm_decoder* decoder, tenon_str* out_text);

// A conversation for the model's chat template. Texts are JSON; an empty one is left out.
typedef struct tenon_llm_chat {
  uint64_t struct_size;
  tenon_str messages;         // [{"role": "user", "content": "Hi"}]
  tenon_str tools;            // a list of JSON schemas of functions
  tenon_str variables;        // an object: further variables of the template
  uint32_t closed;            // 1: without the prompt that starts the assistant's answer
  uint32_t reserved0;
} tenon_llm_chat;

// Returns the text that the template makes. It has all special tokens already:
// tenon_llm_tokenize() with TENON_LLM_PARSE_SPECIAL alone makes tokens of it. Fails with
// TENON_UNSUPPORTED without a template, TENON_CORRUPT for text that is not JSON, and
// TENON_INVALID_ARGUMENT for what the template refuses.
TENON_API tenon_status* tenon_llm_apply_chat_template(const tenon_llm* llm,
                                                      const tenon_llm_chat* chat,
                                                      tenon_text** out_text);


// ---- Generating ---------------------------------------------------------------------------------

// tenon_llm_generate_options::flags
#define TENON_LLM_IGNORE_END UINT32_C(1)     // go on after an end token; not with a schema or regex
#define TENON_LLM_LOGPROBS   UINT32_C(2)     // pieces have log probabilities

// Zero-filled options take the most likely token each time, until an end token or a full context.
// A token is chosen in the order of the fields from logit_bias on.
typedef struct tenon_llm_generate_options {
  uint64_t struct_size;
  int64_t slot;
  int64_t max_tokens;         // 0 = as many as the context has room for
  uint32_t flags;             // TENON_LLM_*
  uint32_t stop_count;
  const tenon_str* stops;     // texts that end the answer and are no part of it
  tenon_str json_schema;      // the answer is JSON of this schema; empty = free text
  tenon_str regex;            // the answer matches as a whole; not together with json_schema
  const int32_t* logit_bias_tokens;
  const float* logit_biases;  // added to the logits of these tokens; -infinity excludes one
  uint64_t logit_bias_count;
  int64_t penalty_window;     // penalties see so many of the latest tokens; 0 = all, and the prompt
  double repetition_penalty;  // above 1: tokens that occurred are less likely; 0 = 1 = off
  double presence_penalty;    // subtracted from logits of tokens that occurred
  double frequency_penalty;   // the same, once for each time
  int64_t top_k;              // keep the most likely tokens, so many; 0 = all
  double top_p;               // keep the most likely tokens of this probability; 0 = 1 = all
  double min_p;               // keep tokens with this share of the most likely one's probability
  double temperature;         // 0 = the most likely token
  uint64_t seed;              // the same seed gives the same tokens
  // (optional) Called while the prompt is read, with the tokens that were read and their number in
  // total. Returns 0 to go on. It must not call tenon with this model.
  uint32_t (*progress)(void* user, uint64_t read, uint64_t total);
  void* progress_user;
  uint32_t top_logprobs;      // pieces have so many of the most likely tokens; 0 = none
  uint32_t reserved0;
} tenon_llm_generate_options;

// tenon_llm_piece::finish
#define TENON_LLM_RUNNING      UINT32_C(0)
#define TENON_LLM_END_TOKEN    UINT32_C(1)   // the model ended the answer
#define TENON_LLM_STOP_STRING  UINT32_C(2)
#define TENON_LLM_COMPLETE     UINT32_C(3)   // the schema or expression allows nothing more
#define TENON_LLM_MAX_TOKENS   UINT32_C(4)
#define TENON_LLM_CONTEXT_FULL UINT32_C(5)
#define TENON_LLM_CANCELLED    UINT32_C(6)   // by progress, tenon_llm_cancel() or
                                             // tenon_llm_generation_cancel()

// A token of an answer, and the text that it completes.
typedef struct tenon_llm_piece {
  uint64_t struct_size;
  tenon_str text;             // complete characters, possibly none; empty without a tokenizer. Text
                              // that may become a stop string is held back. Lives until the next
                              // call with this generation
  int32_t token;              // -1 = none
  uint32_t finish;            // TENON_LLM_*
  float logprob;              // natural logarithm, before penalties and temperature; 0 unless wanted
  uint32_t stop;              // which of the stop strings was met; TENON_NONE = none
  uint64_t prompt_tokens;
  uint64_t cached_tokens;     // of the prompt, which the slot had read before
  uint64_t tokens;            // of the answer, so far
  const int32_t* top_tokens;  // the most likely tokens in this place, in descending order, and their
  const float* top_logprobs;  // log probabilities as that of `logprob`. They live as long as `text`
  uint64_t top_count;         // top_logprobs of the options; 0 in a piece without a token
} tenon_llm_piece;

// Prepares the continuation of a prompt of at least one token, and reads nothing yet. What the slot
// has read before is used as far as the prompt begins with it, so a conversation goes on without
// reading it again. A slot has one generation at a time: an older one fails from now on with
// TENON_INVALID_ARGUMENT, as it does if the slot is changed by other functions. options may be NULL;
// all that they point to is copied.
TENON_API tenon_status* tenon_llm_generate(tenon_llm* llm, const int32_t* prompt, uint64_t count,
                                           const tenon_llm_generate_options* options,
                                           tenon_llm_generation** out_generation);
TENON_API void tenon_llm_generation_destroy(tenon_llm_generation* generation);

// Makes the next token; the first call reads the prompt. The last piece has a finish, and later
// calls return it again, without text and token. After a failure the generation has ended.
TENON_API tenon_status* tenon_llm_generation_next(tenon_llm_generation* generation,
                                                  tenon_llm_piece* out_piece);

// Ends this generation at its next token or after some 128 to 512 tokens of its prompt. No other one
// is concerned. [any-thread]
TENON_API void tenon_llm_generation_cancel(tenon_llm_generation* generation);

// Ends all generations of the model, each at its next token or after some 128 to 512 tokens of a
// prompt, and makes a call of tenon_llm_step(), tenon_llm_logits() or tenon_llm_embed() that is
// in progress fail with TENON_CANCELLED. Later calls are not concerned. [any-thread]
TENON_API void tenon_llm_cancel(tenon_llm* llm);


// ---- Embeddings ---------------------------------------------------------------------------------

// How the hidden states of a text, behind the last norm of the model, become one vector.
#define TENON_LLM_POOLING_MODEL UINT32_C(0)  // as the model's files say: pooling_type of a GGUF file,
                                             // 1_Pooling/config.json of a folder; else MEAN
#define TENON_LLM_POOLING_MEAN  UINT32_C(1)  // the mean of all tokens
#define TENON_LLM_POOLING_CLS   UINT32_C(2)  // that of the first token
#define TENON_LLM_POOLING_LAST  UINT32_C(3)  // that of the last token

// tenon_llm_embed_options::flags
#define TENON_LLM_NOT_NORMALIZED UINT32_C(1) // vectors keep their lengths; else they have length 1

// Zero-filled options are the defaults.
typedef struct tenon_llm_embed_options {
  uint64_t struct_size;
  int64_t slot;
  uint32_t pooling;           // TENON_LLM_POOLING_*
  uint32_t flags;             // TENON_LLM_NOT_NORMALIZED
  // (optional) As that of tenon_llm_generate_options, for all texts together. If it does not return
  // 0, the call fails with TENON_CANCELLED.
  uint32_t (*progress)(void* user, uint64_t read, uint64_t total);
  void* progress_user;
} tenon_llm_embed_options;

// Writes a vector for each text, [text_count, dim] (tenon_llm_facts). Text i has counts[i] tokens, 1
// to the context; `tokens` has those of all texts, one after the other. All is checked before any is
// read. Uses a slot, which is cleared, also if the call fails. Short texts are read together if there
// is memory: where slots share it in any case, else in free slots. On a cpu, with activations in f32
// and without experts, each vector has the bits that it has alone. options may be NULL.
// number_count: exactly text_count * dim.
//
// Fails with TENON_UNSUPPORTED if the model's files ask for a pooling that tenon does not have, and
// the options name none.
TENON_API tenon_status* tenon_llm_embed(tenon_llm* llm, const int32_t* tokens,
                                        const uint64_t* counts, uint32_t text_count,
                                        const tenon_llm_embed_options* options,
                                        float* out_vectors, uint64_t number_count);


// ---- Several sequences --------------------------------------------------------------------------
//
// For apps that schedule sequences themselves. Slots are numbered from 0.

// Appends tokens to the sequences of slots: counts[i] tokens, at least one, to slots[i]. `tokens` has
// those of all slots, one after the other. No slot comes twice. Slots with one token are read
// together. All is checked before any is read.
//
// out_next: NULL, or room for the most likely next token of each. out_logits: NULL, or room for
// [slot_count, vocab] logits of the next tokens; logit_count: exactly their number, else 0.
TENON_API tenon_status* tenon_llm_step(tenon_llm* llm, const int64_t* slots, const uint64_t* counts,
                                       uint32_t slot_count, const int32_t* tokens,
                                       int32_t* out_next, float* out_logits, uint64_t logit_count);

// Writes the logits behind each token of a sequence, [count, vocab]. Uses and clears slot 0.
// logit_count: exactly their number.
TENON_API tenon_status* tenon_llm_logits(tenon_llm* llm, const int32_t* tokens, uint64_t count,
                                         float* out_logits, uint64_t logit_count);

// The number of tokens that a slot has read.
TENON_API tenon_status* tenon_llm_length(const tenon_llm* llm, int64_t slot, int64_t* out_length);

// Forgets what stands behind the first `length` tokens of a slot; 0 forgets all. *out_length: the
// tokens that are left, none of a recurrent model. out_length may be NULL.
TENON_API tenon_status* tenon_llm_truncate(tenon_llm* llm, int64_t slot, int64_t length,
                                           int64_t* out_length);

#ifdef __cplusplus
}
#endif
#endif
