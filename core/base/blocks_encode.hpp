// SPDX-License-Identifier: Apache-2.0
// Encoders of one block each; weights may be null. encode_blocks (blocks.hpp) checks what they need:
// numbers that are finite.
#pragma once

#include <cstddef>

namespace tenon::core::blocks {

void encode_q4_0(const float* x, const float* weights, std::byte* block);
void encode_q4_1(const float* x, const float* weights, std::byte* block);
void encode_q5_0(const float* x, const float* weights, std::byte* block);
void encode_q5_1(const float* x, const float* weights, std::byte* block);
void encode_q8_0(const float* x, const float* weights, std::byte* block);
void encode_iq4_nl(const float* x, const float* weights, std::byte* block);
void encode_mxfp4(const float* x, const float* weights, std::byte* block);

void encode_q2_k(const float* x, const float* weights, std::byte* block);
void encode_q3_k(const float* x, const float* weights, std::byte* block);
void encode_q4_k(const float* x, const float* weights, std::byte* block);
void encode_q5_k(const float* x, const float* weights, std::byte* block);
void encode_q6_k(const float* x, const float* weights, std::byte* block);
void encode_q8_k(const float* x, const float* weights, std::byte* block);

}  // namespace tenon::core::blocks
