// SPDX-License-Identifier: Apache-2.0
// Keys of config.json that change neither the logits of any model nor its training: names, token
// ids, options of output and generation, and pretraining_tp, which splits products without changing
// them.
#pragma once

#include <string_view>

namespace tenon::llm {

inline constexpr std::string_view kHarmlessKeys[] = {"_name_or_path",
                                                     "transformers_version",
                                                     "_commit_hash",
                                                     "auto_map",
                                                     "bos_token_id",
                                                     "pad_token_id",
                                                     "sep_token_id",
                                                     "unk_token_id",
                                                     "decoder_start_token_id",
                                                     "use_cache",
                                                     "pretraining_tp",
                                                     "output_hidden_states",
                                                     "output_attentions",
                                                     "return_dict",
                                                     "return_dict_in_generate",
                                                     "output_scores",
                                                     "chunk_size_feed_forward",
                                                     "id2label",
                                                     "label2id",
                                                     "num_labels",
                                                     "problem_type",
                                                     "finetuning_task",
                                                     "task_specific_params",
                                                     "tokenizer_class",
                                                     "prefix",
                                                     "torchscript",
                                                     "use_bfloat16",
                                                     "tf_legacy_loss",
                                                     "temperature",
                                                     "top_k",
                                                     "top_p",
                                                     "typical_p",
                                                     "do_sample",
                                                     "num_beams",
                                                     "num_beam_groups",
                                                     "num_return_sequences",
                                                     "max_length",
                                                     "min_length",
                                                     "max_new_tokens",
                                                     "length_penalty",
                                                     "diversity_penalty",
                                                     "repetition_penalty",
                                                     "no_repeat_ngram_size",
                                                     "encoder_no_repeat_ngram_size",
                                                     "early_stopping",
                                                     "bad_words_ids",
                                                     "begin_suppress_tokens",
                                                     "suppress_tokens",
                                                     "forced_bos_token_id",
                                                     "forced_eos_token_id",
                                                     "remove_invalid_values",
                                                     "exponential_decay_length_penalty",
                                                     "_attn_implementation",
                                                     "_attn_implementation_autoset",
                                                     "attn_implementation"};

}  // namespace tenon::llm
