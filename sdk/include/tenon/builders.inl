// SPDX-License-Identifier: Apache-2.0
// Members of Graph (tenon.hpp), written from ops.def by tests/tree/builders.cpp: one for each op
// and kind. Operands and functions that an op must have are parameters. Optional operands and
// attributes are members of `rest`; the comment above each function lists them. count_ys defaults
// to the number of outputs.
//
//   g.softmax(x, {.axis = 1})     g.linear(x, w, {.act = "relu", .bias = b})     g.sum(x, {0, 1})
//
// max and min reduce; maximum and minimum compare two operands. A Term is a value or a number.
// Messages and reports quote `provenance`.
// clang-format off

  Node binary(std::string_view kind, Term a, Term b, std::string_view provenance = {}) {
    op::binary rest{};
    std::tie(rest.a, rest.b) = values(a, b);
    rest.kind = std::string(kind);
    return add(rest, provenance);
  }
  Node add(Term a, Term b, std::string_view provenance = {}) {
    return binary("add", a, b, provenance);
  }
  Node sub(Term a, Term b, std::string_view provenance = {}) {
    return binary("sub", a, b, provenance);
  }
  Node mul(Term a, Term b, std::string_view provenance = {}) {
    return binary("mul", a, b, provenance);
  }
  Node div(Term a, Term b, std::string_view provenance = {}) {
    return binary("div", a, b, provenance);
  }
  Node maximum(Term a, Term b, std::string_view provenance = {}) {
    return binary("max", a, b, provenance);
  }
  Node minimum(Term a, Term b, std::string_view provenance = {}) {
    return binary("min", a, b, provenance);
  }
  Node pow(Term a, Term b, std::string_view provenance = {}) {
    return binary("pow", a, b, provenance);
  }
  Node mod(Term a, Term b, std::string_view provenance = {}) {
    return binary("mod", a, b, provenance);
  }
  Node fmod(Term a, Term b, std::string_view provenance = {}) {
    return binary("fmod", a, b, provenance);
  }
  Node atan2(Term a, Term b, std::string_view provenance = {}) {
    return binary("atan2", a, b, provenance);
  }
  Node bit_and(Term a, Term b, std::string_view provenance = {}) {
    return binary("bit_and", a, b, provenance);
  }
  Node bit_or(Term a, Term b, std::string_view provenance = {}) {
    return binary("bit_or", a, b, provenance);
  }
  Node bit_xor(Term a, Term b, std::string_view provenance = {}) {
    return binary("bit_xor", a, b, provenance);
  }
  Node shift_left(Term a, Term b, std::string_view provenance = {}) {
    return binary("shift_left", a, b, provenance);
  }
  Node shift_right(Term a, Term b, std::string_view provenance = {}) {
    return binary("shift_right", a, b, provenance);
  }

  Node compare(std::string_view kind, Term a, Term b, std::string_view provenance = {}) {
    op::compare rest{};
    std::tie(rest.a, rest.b) = values(a, b);
    rest.kind = std::string(kind);
    return add(rest, provenance);
  }
  Node eq(Term a, Term b, std::string_view provenance = {}) {
    return compare("eq", a, b, provenance);
  }
  Node ne(Term a, Term b, std::string_view provenance = {}) {
    return compare("ne", a, b, provenance);
  }
  Node lt(Term a, Term b, std::string_view provenance = {}) {
    return compare("lt", a, b, provenance);
  }
  Node le(Term a, Term b, std::string_view provenance = {}) {
    return compare("le", a, b, provenance);
  }
  Node gt(Term a, Term b, std::string_view provenance = {}) {
    return compare("gt", a, b, provenance);
  }
  Node ge(Term a, Term b, std::string_view provenance = {}) {
    return compare("ge", a, b, provenance);
  }

  // .b
  Node logical(std::string_view kind, Value a, op::logical rest = {},
               std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.a = a;
    return add(rest, provenance);
  }
  Node and_(Value a, Value b, std::string_view provenance = {}) {
    return logical("and", a, {.b = b}, provenance);
  }
  Node or_(Value a, Value b, std::string_view provenance = {}) {
    return logical("or", a, {.b = b}, provenance);
  }
  Node xor_(Value a, Value b, std::string_view provenance = {}) {
    return logical("xor", a, {.b = b}, provenance);
  }
  Node not_(Value a, std::string_view provenance = {}) {
    return logical("not", a, {}, provenance);
  }

  // .alpha .beta .ste
  Node unary(std::string_view kind, Value x, op::unary rest = {},
             std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.x = x;
    return add(rest, provenance);
  }
  Node neg(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("neg", x, std::move(rest), provenance);
  }
  Node abs(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("abs", x, std::move(rest), provenance);
  }
  Node sign(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("sign", x, std::move(rest), provenance);
  }
  Node exp(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("exp", x, std::move(rest), provenance);
  }
  Node expm1(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("expm1", x, std::move(rest), provenance);
  }
  Node log(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("log", x, std::move(rest), provenance);
  }
  Node log1p(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("log1p", x, std::move(rest), provenance);
  }
  Node sqrt(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("sqrt", x, std::move(rest), provenance);
  }
  Node rsqrt(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("rsqrt", x, std::move(rest), provenance);
  }
  Node floor(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("floor", x, std::move(rest), provenance);
  }
  Node ceil(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("ceil", x, std::move(rest), provenance);
  }
  Node trunc(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("trunc", x, std::move(rest), provenance);
  }
  Node round(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("round", x, std::move(rest), provenance);
  }
  Node sin(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("sin", x, std::move(rest), provenance);
  }
  Node cos(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("cos", x, std::move(rest), provenance);
  }
  Node tan(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("tan", x, std::move(rest), provenance);
  }
  Node atan(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("atan", x, std::move(rest), provenance);
  }
  Node asin(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("asin", x, std::move(rest), provenance);
  }
  Node acos(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("acos", x, std::move(rest), provenance);
  }
  Node sinh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("sinh", x, std::move(rest), provenance);
  }
  Node cosh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("cosh", x, std::move(rest), provenance);
  }
  Node tanh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("tanh", x, std::move(rest), provenance);
  }
  Node erf(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("erf", x, std::move(rest), provenance);
  }
  Node erfc(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("erfc", x, std::move(rest), provenance);
  }
  Node is_nan(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("is_nan", x, std::move(rest), provenance);
  }
  Node is_inf(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("is_inf", x, std::move(rest), provenance);
  }
  Node reciprocal(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("reciprocal", x, std::move(rest), provenance);
  }
  Node square(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("square", x, std::move(rest), provenance);
  }
  Node relu(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("relu", x, std::move(rest), provenance);
  }
  Node leaky_relu(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("leaky_relu", x, std::move(rest), provenance);
  }
  Node elu(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("elu", x, std::move(rest), provenance);
  }
  Node selu(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("selu", x, std::move(rest), provenance);
  }
  Node sigmoid(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("sigmoid", x, std::move(rest), provenance);
  }
  Node hard_sigmoid(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("hard_sigmoid", x, std::move(rest), provenance);
  }
  Node softplus(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("softplus", x, std::move(rest), provenance);
  }
  Node softsign(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("softsign", x, std::move(rest), provenance);
  }
  Node silu(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("silu", x, std::move(rest), provenance);
  }
  Node hard_swish(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("hard_swish", x, std::move(rest), provenance);
  }
  Node mish(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("mish", x, std::move(rest), provenance);
  }
  Node gelu(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("gelu", x, std::move(rest), provenance);
  }
  Node gelu_tanh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("gelu_tanh", x, std::move(rest), provenance);
  }
  Node exp2(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("exp2", x, std::move(rest), provenance);
  }
  Node log2(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("log2", x, std::move(rest), provenance);
  }
  Node asinh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("asinh", x, std::move(rest), provenance);
  }
  Node acosh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("acosh", x, std::move(rest), provenance);
  }
  Node atanh(Value x, op::unary rest = {}, std::string_view provenance = {}) {
    return unary("atanh", x, std::move(rest), provenance);
  }

  // .alpha .beta .ste .from_output
  Node activation_backward(std::string_view kind, Value x, Value dy,
                           op::activation_backward rest = {}, std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.x = x;
    rest.dy = dy;
    return add(rest, provenance);
  }

  // .saturate
  Node cast(Value x, tenon_dtype to, op::cast rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.to = to;
    return add(rest, provenance);
  }

  Node copy(Value x, std::string_view provenance = {}) {
    op::copy rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  Node stop_gradient(Value x, std::string_view provenance = {}) {
    op::stop_gradient rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  Node where(Value cond, Term a, Term b, std::string_view provenance = {}) {
    op::where rest{};
    std::tie(rest.a, rest.b) = values(a, b);
    rest.cond = cond;
    return add(rest, provenance);
  }

  // .act .gate_first .up
  Node swiglu(Value gate, op::swiglu rest = {}, std::string_view provenance = {}) {
    rest.gate = gate;
    return add(rest, provenance);
  }

  // .act .gate_first .up .want_dup
  Node swiglu_backward(Value dy, Value gate, op::swiglu_backward rest = {},
                       std::string_view provenance = {}) {
    rest.dy = dy;
    rest.gate = gate;
    return add(rest, provenance);
  }

  // .trans_a .trans_b .alpha .out_dtype .f32_precision
  Node matmul(Value a, Value b, op::matmul rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    rest.b = b;
    return add(rest, provenance);
  }

  // .trans_a .trans_b .alpha .out_dtype .f32_precision .act .act_alpha .act_beta .bias .residual
  // .want_pre_act
  Node linear(Value a, Value b, op::linear rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    rest.b = b;
    return add(rest, provenance);
  }

  // .scale
  Node lora_matmul(Value x, Value w, Value a, Value b, op::lora_matmul rest = {},
                   std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    rest.a = a;
    rest.b = b;
    return add(rest, provenance);
  }

  // .trans_a .trans_b .alpha .out_dtype .f32_precision .biases .count_ys
  Node batch_linear(Value a, std::vector<Value> bs, op::batch_linear rest = {},
                    std::string_view provenance = {}) {
    rest.a = a;
    rest.bs = std::move(bs);
    if (rest.count_ys == 0) rest.count_ys = rest.bs.size();
    return add(rest, provenance);
  }

  // .trans_w .ids .offsets .p
  Node grouped_matmul(Value x, Value w, op::grouped_matmul rest = {},
                      std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .trans_w .ids .offsets .p .want_dx .want_dw .want_dp
  Node grouped_matmul_backward(Value dy, Value x, Value w, op::grouped_matmul_backward rest = {},
                               std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .axes .keepdims .noop_with_empty_axes
  Node reduce(std::string_view kind, Value x, op::reduce rest = {},
              std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.x = x;
    return add(rest, provenance);
  }
  Node sum(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
           std::string_view provenance = {}) {
    return reduce("sum", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node mean(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
            std::string_view provenance = {}) {
    return reduce("mean", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node max(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
           std::string_view provenance = {}) {
    return reduce("max", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node min(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
           std::string_view provenance = {}) {
    return reduce("min", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node prod(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
            std::string_view provenance = {}) {
    return reduce("prod", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node sum_square(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
                  std::string_view provenance = {}) {
    return reduce("sum_square", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node l1(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
          std::string_view provenance = {}) {
    return reduce("l1", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node l2(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
          std::string_view provenance = {}) {
    return reduce("l2", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node logsumexp(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
                 std::string_view provenance = {}) {
    return reduce("logsumexp", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node any(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
           std::string_view provenance = {}) {
    return reduce("any", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }
  Node all(Value x, std::vector<int64_t> axes = {}, bool keepdims = false,
           std::string_view provenance = {}) {
    return reduce("all", x, {.axes = std::move(axes), .keepdims = keepdims}, provenance);
  }

  // .axis .log
  Node softmax(Value x, op::softmax rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .log
  Node softmax_backward(Value dy, Value y, op::softmax_backward rest = {},
                        std::string_view provenance = {}) {
    rest.dy = dy;
    rest.y = y;
    return add(rest, provenance);
  }

  // .axis .ignore_index .label_smoothing .reduction .weight .want_lse
  Node cross_entropy(Value logits, Value labels, op::cross_entropy rest = {},
                     std::string_view provenance = {}) {
    rest.logits = logits;
    rest.labels = labels;
    return add(rest, provenance);
  }

  // .axis .ignore_index .label_smoothing .reduction .weight .lse
  Node cross_entropy_backward(Value dy, Value logits, Value labels,
                              op::cross_entropy_backward rest = {},
                              std::string_view provenance = {}) {
    rest.dy = dy;
    rest.logits = logits;
    rest.labels = labels;
    return add(rest, provenance);
  }

  // .axis .keepdims .select_last
  Node argmax(Value x, op::argmax rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .keepdims .select_last
  Node argmin(Value x, op::argmin rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .k .axis .largest .sorted
  Node topk(Value x, op::topk rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .descending .stable
  Node sort(Value x, op::sort rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .exclusive .reverse
  Node cumsum(Value x, op::cumsum rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .exclusive .reverse
  Node cumprod(Value x, op::cumprod rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .shape
  Node random_bits(Value rng, op::random_bits rest = {}, std::string_view provenance = {}) {
    rest.rng = rng;
    return add(rest, provenance);
  }

  // .shape .dtype
  Node random_uniform(Value rng, op::random_uniform rest = {}, std::string_view provenance = {}) {
    rest.rng = rng;
    return add(rest, provenance);
  }

  // .shape .dtype
  Node random_normal(Value rng, op::random_normal rest = {}, std::string_view provenance = {}) {
    rest.rng = rng;
    return add(rest, provenance);
  }

  // .p
  Node dropout(Value x, Value rng, op::dropout rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.rng = rng;
    return add(rest, provenance);
  }

  // .temperature .top_k .top_p .min_p .want_logprob
  Node sample(Value logits, Value rng, op::sample rest = {}, std::string_view provenance = {}) {
    rest.logits = logits;
    rest.rng = rng;
    return add(rest, provenance);
  }

  // .axis .eps .gamma .beta .want_mean .want_inv_std
  Node layer_norm(Value x, op::layer_norm rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .eps .gamma .mean .inv_std .dsum .want_dx .want_dgamma .want_dbeta
  Node layer_norm_backward(Value dy, Value x, op::layer_norm_backward rest = {},
                           std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .eps .bias .gamma .beta .want_sum .want_mean .want_inv_std
  Node residual_layer_norm(Value x, Value residual, op::residual_layer_norm rest = {},
                           std::string_view provenance = {}) {
    rest.x = x;
    rest.residual = residual;
    return add(rest, provenance);
  }

  // .axis .eps .beta .want_inv_rms
  Node rms_norm(Value x, Value gamma, op::rms_norm rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.gamma = gamma;
    return add(rest, provenance);
  }

  // .axis .eps .inv_rms .dsum .want_dx .want_dgamma .want_dbeta
  Node rms_norm_backward(Value dy, Value x, Value gamma, op::rms_norm_backward rest = {},
                         std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.gamma = gamma;
    return add(rest, provenance);
  }

  // .axis .eps .bias .beta .want_sum .want_inv_rms
  Node residual_rms_norm(Value x, Value residual, Value gamma, op::residual_rms_norm rest = {},
                         std::string_view provenance = {}) {
    rest.x = x;
    rest.residual = residual;
    rest.gamma = gamma;
    return add(rest, provenance);
  }

  // .groups .eps .gamma .beta .want_mean .want_inv_std
  Node group_norm(Value x, op::group_norm rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .groups .eps .gamma .mean .inv_std .want_dx .want_dgamma .want_dbeta
  Node group_norm_backward(Value dy, Value x, op::group_norm_backward rest = {},
                           std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    return add(rest, provenance);
  }

  // .eps .gamma .beta .want_mean .want_inv_std
  Node layer_norm2d(Value x, op::layer_norm2d rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .eps .gamma .mean .inv_std .want_dx .want_dgamma .want_dbeta
  Node layer_norm2d_backward(Value dy, Value x, op::layer_norm2d_backward rest = {},
                             std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    return add(rest, provenance);
  }

  // .layout .n_rot .interleaved .inverse .offset .num_heads .position_ids
  Node rope(Value x, Value cos, Value sin, op::rope rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.cos = cos;
    rest.sin = sin;
    return add(rest, provenance);
  }

  // .width .height .theta .exclude_tail .inverse
  Node rope_axial2d(Value x, op::rope_axial2d rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .layout .scale .softcap .causal .left_window .right_window .offset .mask .kv_len .past_len
  // .block_table .want_lse
  Node attention(Value q, Value k, Value v, op::attention rest = {},
                 std::string_view provenance = {}) {
    rest.q = q;
    rest.k = k;
    rest.v = v;
    return add(rest, provenance);
  }

  // .layout .scale .softcap .causal .left_window .right_window .offset .mask .kv_len .past_len
  // .want_dmask
  Node attention_backward(Value dout, Value q, Value k, Value v, Value o, Value lse,
                          op::attention_backward rest = {}, std::string_view provenance = {}) {
    rest.dout = dout;
    rest.q = q;
    rest.k = k;
    rest.v = v;
    rest.o = o;
    rest.lse = lse;
    return add(rest, provenance);
  }

  // .block_size .n_rot .interleaved .scale .softcap .left_window .cos .sin .position_ids
  // .block_table
  Node decode_attention(Value q, Value k, Value v, Value k_cache, Value v_cache, Value rows,
                        Value kv_len, Value past_len, op::decode_attention rest = {},
                        std::string_view provenance = {}) {
    rest.q = q;
    rest.k = k;
    rest.v = v;
    rest.k_cache = k_cache;
    rest.v_cache = v_cache;
    rest.rows = rows;
    rest.kv_len = kv_len;
    rest.past_len = past_len;
    return add(rest, provenance);
  }

  // .axis .oob
  Node gather(Value data, Value indices, op::gather rest = {}, std::string_view provenance = {}) {
    rest.data = data;
    rest.indices = indices;
    return add(rest, provenance);
  }

  // .axis .dim .padding_idx .oob
  Node gather_backward(Value dy, Value indices, op::gather_backward rest = {},
                       std::string_view provenance = {}) {
    rest.dy = dy;
    rest.indices = indices;
    return add(rest, provenance);
  }

  // .axis .oob
  Node scatter(Value base, Value indices, Value updates, op::scatter rest = {},
               std::string_view provenance = {}) {
    rest.base = base;
    rest.indices = indices;
    rest.updates = updates;
    return add(rest, provenance);
  }

  // .axis .dim .oob .base
  Node scatter_add(Value updates, Value indices, op::scatter_add rest = {},
                   std::string_view provenance = {}) {
    rest.updates = updates;
    rest.indices = indices;
    return add(rest, provenance);
  }

  // .size .oob
  Node dynamic_slice(Value x, Value start, op::dynamic_slice rest = {},
                     std::string_view provenance = {}) {
    rest.x = x;
    rest.start = start;
    return add(rest, provenance);
  }

  // .oob
  Node dynamic_update_slice(Value base, Value update, Value start,
                            op::dynamic_update_slice rest = {}, std::string_view provenance = {}) {
    rest.base = base;
    rest.update = update;
    rest.start = start;
    return add(rest, provenance);
  }

  // .bound
  Node non_zero(Value x, op::non_zero rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .oob
  Node gather_elements(Value data, Value indices, op::gather_elements rest = {},
                       std::string_view provenance = {}) {
    rest.data = data;
    rest.indices = indices;
    return add(rest, provenance);
  }

  // .axis .shape .oob .base
  Node scatter_elements_add(Value updates, Value indices, op::scatter_elements_add rest = {},
                            std::string_view provenance = {}) {
    rest.updates = updates;
    rest.indices = indices;
    return add(rest, provenance);
  }

  // .axis .oob
  Node scatter_reduce(std::string_view kind, Value base, Value indices, Value updates,
                      op::scatter_reduce rest = {}, std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.base = base;
    rest.indices = indices;
    rest.updates = updates;
    return add(rest, provenance);
  }

  // .axis .oob
  Node scatter_elements_reduce(std::string_view kind, Value base, Value indices, Value updates,
                               op::scatter_elements_reduce rest = {},
                               std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.base = base;
    rest.indices = indices;
    rest.updates = updates;
    return add(rest, provenance);
  }

  // .start .len .step
  Node narrow(Value x, op::narrow rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis
  Node concat(std::vector<Value> xs, op::concat rest = {}, std::string_view provenance = {}) {
    rest.xs = std::move(xs);
    return add(rest, provenance);
  }

  Node transpose(Value x, std::vector<int64_t> perm, std::string_view provenance = {}) {
    op::transpose rest{};
    rest.x = x;
    rest.perm = std::move(perm);
    return add(rest, provenance);
  }

  Node expand(Value x, std::vector<int64_t> shape, std::string_view provenance = {}) {
    op::expand rest{};
    rest.x = x;
    rest.shape = std::move(shape);
    return add(rest, provenance);
  }

  // .allow_zero
  Node reshape(Value x, std::vector<int64_t> shape, op::reshape rest = {},
               std::string_view provenance = {}) {
    rest.x = x;
    rest.shape = std::move(shape);
    return add(rest, provenance);
  }

  // .before .after .mode .value
  Node pad(Value x, op::pad rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .shape .axis .dtype .start .step
  Node iota(op::iota rest = {}, std::string_view provenance = {}) {
    return add(rest, provenance);
  }

  Node view_as_real(Value x, std::string_view provenance = {}) {
    op::view_as_real rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  Node view_as_complex(Value x, std::string_view provenance = {}) {
    op::view_as_complex rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .ceil_mode .want_indices
  Node maxpool2d(Value x, op::maxpool2d rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .ceil_mode
  Node maxpool2d_backward(Value dy, Value x, op::maxpool2d_backward rest = {},
                          std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .ceil_mode .count_include_pad .divisor_override
  Node avgpool2d(Value x, op::avgpool2d rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .ceil_mode .count_include_pad .divisor_override .size
  Node avgpool2d_backward(Value dy, op::avgpool2d_backward rest = {},
                          std::string_view provenance = {}) {
    rest.dy = dy;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .ceil_mode .count_include_pad .divisor_override .want_indices
  Node pool(std::string_view kind, Value x, op::pool rest = {}, std::string_view provenance = {}) {
    rest.kind = std::string(kind);
    rest.x = x;
    return add(rest, provenance);
  }

  // .stride .pads .dilation .groups .act .act_alpha .act_beta .bias .residual .want_pre_act
  Node conv(Value x, Value w, op::conv rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .stride .pads .dilation .groups .output_padding .bias
  Node conv_transpose(Value x, Value w, op::conv_transpose rest = {},
                      std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .stride .pads .dilation .groups .size
  Node conv_backward_input(Value dy, Value w, op::conv_backward_input rest = {},
                           std::string_view provenance = {}) {
    rest.dy = dy;
    rest.w = w;
    return add(rest, provenance);
  }

  // .stride .pads .dilation .groups .kernel
  Node conv_backward_weight(Value dy, Value x, op::conv_backward_weight rest = {},
                            std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .layout
  Node im2col(Value x, op::im2col rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .kernel .stride .pads .dilation .layout .size
  Node col2im(Value columns, op::col2im rest = {}, std::string_view provenance = {}) {
    rest.columns = columns;
    return add(rest, provenance);
  }

  // .axis .block .to .zero_point
  Node quantize(Value x, Value scale, op::quantize rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.scale = scale;
    return add(rest, provenance);
  }

  // .axis .block .to .zero_point
  Node dequantize(Value q, Value scale, op::dequantize rest = {},
                  std::string_view provenance = {}) {
    rest.q = q;
    rest.scale = scale;
    return add(rest, provenance);
  }

  // .to .act .a_zero .b_zero .bias .multiplier .y_zero
  Node qmatmul(Value a, Value b, op::qmatmul rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    rest.b = b;
    return add(rest, provenance);
  }

  // .stride .pads .dilation .groups .to .act .x_zero .w_zero .bias .multiplier .y_zero
  Node qconv(Value x, Value w, op::qconv rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .axis .qmin .qmax .ste .zero_point
  Node fake_quantize(Value x, Value scale, op::fake_quantize rest = {},
                     std::string_view provenance = {}) {
    rest.x = x;
    rest.scale = scale;
    return add(rest, provenance);
  }

  // .axis .qmin .qmax .ste .zero_point
  Node fake_quantize_backward(Value dy, Value x, Value scale, op::fake_quantize_backward rest = {},
                              std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.scale = scale;
    return add(rest, provenance);
  }

  // .axis .qmin .qmax .grad_factor
  Node lsq_quantize(Value x, Value scale, op::lsq_quantize rest = {},
                    std::string_view provenance = {}) {
    rest.x = x;
    rest.scale = scale;
    return add(rest, provenance);
  }

  // .axis .qmin .qmax .grad_factor .want_dx .want_dscale
  Node lsq_quantize_backward(Value dy, Value x, Value scale, op::lsq_quantize_backward rest = {},
                             std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.scale = scale;
    return add(rest, provenance);
  }

  // .axis .mode .decay .qmax
  Node amax_observer(Value x, Value state, op::amax_observer rest = {},
                     std::string_view provenance = {}) {
    rest.x = x;
    rest.state = state;
    return add(rest, provenance);
  }

  // .mode .coordinates .nearest_mode .cubic_a .exclude_outside .antialias .extrapolation_value
  // .sizes .scales .roi
  Node resize(Value x, op::resize rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .mode .coordinates .nearest_mode .cubic_a .exclude_outside .antialias .sizes .scales .roi .size
  Node resize_backward(Value dy, op::resize_backward rest = {}, std::string_view provenance = {}) {
    rest.dy = dy;
    return add(rest, provenance);
  }

  // .mode .padding .align_corners
  Node grid_sample(Value x, Value grid, op::grid_sample rest = {},
                   std::string_view provenance = {}) {
    rest.x = x;
    rest.grid = grid;
    return add(rest, provenance);
  }

  // .mode .padding .align_corners .want_dx .want_dgrid
  Node grid_sample_backward(Value dy, Value x, Value grid, op::grid_sample_backward rest = {},
                            std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.grid = grid;
    return add(rest, provenance);
  }

  // .mode .coordinates .output_height .output_width .sampling_ratio .spatial_scale
  Node roi_align(Value x, Value rois, Value batch_indices, op::roi_align rest = {},
                 std::string_view provenance = {}) {
    rest.x = x;
    rest.rois = rois;
    rest.batch_indices = batch_indices;
    return add(rest, provenance);
  }

  // .mode .coordinates .output_height .output_width .sampling_ratio .spatial_scale
  Node roi_align_backward(Value dy, Value x, Value rois, Value batch_indices,
                          op::roi_align_backward rest = {}, std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.rois = rois;
    rest.batch_indices = batch_indices;
    return add(rest, provenance);
  }

  // .momentum .dampening .nesterov .weight_decay .step .momentum_buf .grad_scale .apply
  // .want_momentum_buf_out
  Node sgd(Value w, Value g, Value lr, op::sgd rest = {}, std::string_view provenance = {}) {
    rest.w = w;
    rest.g = g;
    rest.lr = lr;
    return add(rest, provenance);
  }

  // .beta1 .beta2 .eps .weight_decay .grad_scale .apply
  Node adamw(Value w, Value g, Value m, Value v, Value lr, Value step, op::adamw rest = {},
             std::string_view provenance = {}) {
    rest.w = w;
    rest.g = g;
    rest.m = m;
    rest.v = v;
    rest.lr = lr;
    rest.step = step;
    return add(rest, provenance);
  }

  // .beta1 .beta2 .weight_decay .grad_scale .apply
  Node lion(Value w, Value g, Value m, Value lr, op::lion rest = {},
            std::string_view provenance = {}) {
    rest.w = w;
    rest.g = g;
    rest.m = m;
    rest.lr = lr;
    return add(rest, provenance);
  }

  // .in_axes .out_axes .captured .count_ys
  Node vmap(std::vector<Value> xs, const Function& body, op::vmap rest = {},
            std::string_view provenance = {}) {
    rest.xs = std::move(xs);
    rest.body = body;
    if (rest.count_ys == 0) rest.count_ys = outputs_of(body);
    return add(rest, provenance);
  }

  // .model .xs .weights .count_ys
  Node onnx(op::onnx rest = {}, std::string_view provenance = {}) {
    return add(rest, provenance);
  }

  // .count_ys
  Node elementwise_region(std::vector<Value> xs, const Function& body,
                          op::elementwise_region rest = {}, std::string_view provenance = {}) {
    rest.xs = std::move(xs);
    rest.body = body;
    if (rest.count_ys == 0) rest.count_ys = outputs_of(body);
    return add(rest, provenance);
  }

  // .sets .count_ys
  Node batch_elementwise_region(std::vector<Value> xs, const Function& body,
                                op::batch_elementwise_region rest = {},
                                std::string_view provenance = {}) {
    rest.xs = std::move(xs);
    rest.body = body;
    if (rest.count_ys == 0) rest.count_ys = outputs_of(body, rest.sets);
    return add(rest, provenance);
  }

  // .xs .count_ys
  Node if_(Value cond, const Function& then_branch, const Function& else_branch, op::if_ rest = {},
           std::string_view provenance = {}) {
    rest.cond = cond;
    rest.then_branch = then_branch;
    rest.else_branch = else_branch;
    if (rest.count_ys == 0) rest.count_ys = outputs_of(then_branch);
    return add(rest, provenance);
  }

  // .max_trip .captured .count_ys
  Node while_(std::vector<Value> carry, const Function& cond, const Function& body,
              op::while_ rest = {}, std::string_view provenance = {}) {
    rest.carry = std::move(carry);
    rest.cond = cond;
    rest.body = body;
    if (rest.count_ys == 0) rest.count_ys = rest.carry.size();
    return add(rest, provenance);
  }

  // .length .reverse .carry .xs .captured .count_ys
  Node scan(const Function& body, op::scan rest = {}, std::string_view provenance = {}) {
    rest.body = body;
    if (rest.count_ys == 0) rest.count_ys = outputs_of(body);
    return add(rest, provenance);
  }

  // .direction .gates .h0 .c0 .lengths .want_h .want_c
  Node lstm(Value x, Value r, op::lstm rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.r = r;
    return add(rest, provenance);
  }

  // .direction .gates .reset_after .n_bias .h0 .lengths .want_h
  Node gru(Value x, Value r, op::gru rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.r = r;
    return add(rest, provenance);
  }

  // .reduction
  Node mse_loss(Value x, Value target, op::mse_loss rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .reduction
  Node l1_loss(Value x, Value target, op::l1_loss rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .beta .reduction
  Node smooth_l1_loss(Value x, Value target, op::smooth_l1_loss rest = {},
                      std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .delta .reduction
  Node huber_loss(Value x, Value target, op::huber_loss rest = {},
                  std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .reduction .weight
  Node binary_cross_entropy(Value x, Value target, op::binary_cross_entropy rest = {},
                            std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .reduction .weight .pos_weight
  Node binary_cross_entropy_with_logits(Value x, Value target,
                                        op::binary_cross_entropy_with_logits rest = {},
                                        std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .log_target .reduction
  Node kl_div(Value x, Value target, op::kl_div rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.target = target;
    return add(rest, provenance);
  }

  // .axis .ignore_index .reduction .weight
  Node nll_loss(Value x, Value labels, op::nll_loss rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.labels = labels;
    return add(rest, provenance);
  }

  // .blank .zero_infinity .reduction
  Node ctc_loss(Value x, Value labels, Value x_lengths, Value label_lengths, op::ctc_loss rest = {},
                std::string_view provenance = {}) {
    rest.x = x;
    rest.labels = labels;
    rest.x_lengths = x_lengths;
    rest.label_lengths = label_lengths;
    return add(rest, provenance);
  }

  // .on_singular
  Node lu(Value a, op::lu rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    return add(rest, provenance);
  }

  // .upper .trans_a .unit_diagonal
  Node triangular_solve(Value a, Value b, op::triangular_solve rest = {},
                        std::string_view provenance = {}) {
    rest.a = a;
    rest.b = b;
    return add(rest, provenance);
  }

  // .on_singular
  Node cholesky(Value a, op::cholesky rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    return add(rest, provenance);
  }

  // .on_singular .want_lu .want_perm
  Node dense_solve(Value a, Value b, op::dense_solve rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    rest.b = b;
    return add(rest, provenance);
  }

  // .trans_a
  Node lu_solve(Value lu, Value perm, Value b, op::lu_solve rest = {},
                std::string_view provenance = {}) {
    rest.lu = lu;
    rest.perm = perm;
    rest.b = b;
    return add(rest, provenance);
  }

  // .on_singular
  Node inverse(Value a, op::inverse rest = {}, std::string_view provenance = {}) {
    rest.a = a;
    return add(rest, provenance);
  }

  Node det(Value a, std::string_view provenance = {}) {
    op::det rest{};
    rest.a = a;
    return add(rest, provenance);
  }

  // .n_group .topk_group .top_k .routed_scaling .score .normalize .group_score .bias
  Node group_limited_gate(Value logits, op::group_limited_gate rest = {},
                          std::string_view provenance = {}) {
    rest.logits = logits;
    return add(rest, provenance);
  }

  // .routed_scaling .score .normalize
  Node group_limited_gate_backward(Value dy, Value logits, Value index,
                                   op::group_limited_gate_backward rest = {},
                                   std::string_view provenance = {}) {
    rest.dy = dy;
    rest.logits = logits;
    rest.index = index;
    return add(rest, provenance);
  }

  Node conj(Value x, std::string_view provenance = {}) {
    op::conj rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  Node complex_abs(Value x, std::string_view provenance = {}) {
    op::complex_abs rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  Node complex_norm_sq(Value x, std::string_view provenance = {}) {
    op::complex_norm_sq rest{};
    rest.x = x;
    return add(rest, provenance);
  }

  // .axes .n .norm .inverse
  Node fft(Value x, op::fft rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .n .norm
  Node rfft(Value x, op::rfft rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .axis .n .norm
  Node irfft(Value x, op::irfft rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .n_fft .hop .win_length .center .pad_mode .normalized .onesided .window
  Node stft(Value x, op::stft rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .n_fft .hop .win_length .center .normalized .onesided .length .window
  Node istft(Value x, op::istft rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .mode
  Node fft_conv1d(Value x, Value w, op::fft_conv1d rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .n .d .onesided .dtype
  Node fftfreq(op::fftfreq rest = {}, std::string_view provenance = {}) {
    return add(rest, provenance);
  }

  // .axes .inverse
  Node fftshift(Value x, op::fftshift rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .width .height .eps2d .near .far .radius_clip .response
  Node splat_project(Value means, Value quats, Value scales, Value viewmats, Value intrinsics,
                     op::splat_project rest = {}, std::string_view provenance = {}) {
    rest.means = means;
    rest.quats = quats;
    rest.scales = scales;
    rest.viewmats = viewmats;
    rest.intrinsics = intrinsics;
    return add(rest, provenance);
  }

  // .degree
  Node splat_sh(Value means, Value viewmats, Value coeffs, op::splat_sh rest = {},
                std::string_view provenance = {}) {
    rest.means = means;
    rest.viewmats = viewmats;
    rest.coeffs = coeffs;
    return add(rest, provenance);
  }

  // .width .height .tile .max_intersections
  Node splat_bin(Value radii, Value means2d, Value depths, op::splat_bin rest = {},
                 std::string_view provenance = {}) {
    rest.radii = radii;
    rest.means2d = means2d;
    rest.depths = depths;
    return add(rest, provenance);
  }

  // .images .width .height .tile
  Node splat_sort(Value keys, Value ids, op::splat_sort rest = {},
                  std::string_view provenance = {}) {
    rest.keys = keys;
    rest.ids = ids;
    return add(rest, provenance);
  }

  // .width .height .tile .response .background
  Node splat_rasterize(Value means2d, Value conics, Value colors, Value opacities,
                       Value tile_offsets, Value ids, op::splat_rasterize rest = {},
                       std::string_view provenance = {}) {
    rest.means2d = means2d;
    rest.conics = conics;
    rest.colors = colors;
    rest.opacities = opacities;
    rest.tile_offsets = tile_offsets;
    rest.ids = ids;
    return add(rest, provenance);
  }

  // .width .height .tile .response .background .dalpha .want_dmeans2d .want_dconics .want_dcolors
  // .want_dopacities .want_dbackground
  Node splat_rasterize_backward(Value dimage, Value means2d, Value conics, Value colors,
                                Value opacities, Value tile_offsets, Value ids, Value last_ids,
                                op::splat_rasterize_backward rest = {},
                                std::string_view provenance = {}) {
    rest.dimage = dimage;
    rest.means2d = means2d;
    rest.conics = conics;
    rest.colors = colors;
    rest.opacities = opacities;
    rest.tile_offsets = tile_offsets;
    rest.ids = ids;
    rest.last_ids = last_ids;
    return add(rest, provenance);
  }

  // .width .height .eps2d .near .far .radius_clip .degree .tile .max_intersections .response
  // .background
  Node splat_render(Value means, Value quats, Value scales, Value opacities, Value coeffs,
                    Value viewmats, Value intrinsics, op::splat_render rest = {},
                    std::string_view provenance = {}) {
    rest.means = means;
    rest.quats = quats;
    rest.scales = scales;
    rest.opacities = opacities;
    rest.coeffs = coeffs;
    rest.viewmats = viewmats;
    rest.intrinsics = intrinsics;
    return add(rest, provenance);
  }

  // .sr .n_fft .n_mels .fmin .fmax .scale .norm .dtype
  Node mel_filterbank(op::mel_filterbank rest = {}, std::string_view provenance = {}) {
    return add(rest, provenance);
  }

  // .floor .log .dynamic_range .affine .max_scope
  Node log_mel(Value x, Value w, op::log_mel rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .floor .log .dynamic_range .affine .max_scope .want_dw
  Node log_mel_backward(Value dy, Value x, Value w, op::log_mel_backward rest = {},
                        std::string_view provenance = {}) {
    rest.dy = dy;
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .sr .n_fft .hop .n_mels .fmin .fmax .scale .norm .center .pad_mode .drop_last .floor .log
  // .dynamic_range .affine .max_scope .window
  Node log_mel_spectrogram(Value x, op::log_mel_spectrogram rest = {},
                           std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .fs .nperseg .noverlap .nfft .detrend .onesided .scaling .average .window
  Node welch_psd(Value x, op::welch_psd rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .k .select .height .min_distance .prominence
  Node spectrum_peaks(Value x, op::spectrum_peaks rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .fs .nperseg .noverlap .nfft .detrend .onesided .scaling .average .k .select .height
  // .min_distance .prominence .window
  Node welch_peaks(Value x, op::welch_peaks rest = {}, std::string_view provenance = {}) {
    rest.x = x;
    return add(rest, provenance);
  }

  // .dt_softplus .layout .d .z .dt_bias .h0 .want_h_last
  Node selective_scan(Value u, Value dt, Value a, Value b, Value c, op::selective_scan rest = {},
                      std::string_view provenance = {}) {
    rest.u = u;
    rest.dt = dt;
    rest.a = a;
    rest.b = b;
    rest.c = c;
    return add(rest, provenance);
  }

  // .dt_softplus .layout .d .z .dt_bias .h0 .dh_last .want_du .want_ddt .want_da .want_db .want_dc
  // .want_dd .want_dz .want_ddt_bias .want_dh0
  Node selective_scan_backward(Value dy, Value u, Value dt, Value a, Value b, Value c,
                               op::selective_scan_backward rest = {},
                               std::string_view provenance = {}) {
    rest.dy = dy;
    rest.u = u;
    rest.dt = dt;
    rest.a = a;
    rest.b = b;
    rest.c = c;
    return add(rest, provenance);
  }

  // .scale .qk_l2norm .chunk .state .cu_seqlens .want_state_out
  Node gated_delta_rule(Value q, Value k, Value v, Value g, Value beta,
                        op::gated_delta_rule rest = {}, std::string_view provenance = {}) {
    rest.q = q;
    rest.k = k;
    rest.v = v;
    rest.g = g;
    rest.beta = beta;
    return add(rest, provenance);
  }

  // .scale .qk_l2norm .chunk .state .cu_seqlens .dstate_out .want_dq .want_dk .want_dv .want_dg
  // .want_dbeta .want_dstate
  Node gated_delta_rule_backward(Value dout, Value q, Value k, Value v, Value g, Value beta,
                                 op::gated_delta_rule_backward rest = {},
                                 std::string_view provenance = {}) {
    rest.dout = dout;
    rest.q = q;
    rest.k = k;
    rest.v = v;
    rest.g = g;
    rest.beta = beta;
    return add(rest, provenance);
  }

  // .k .metric .exclude_self .x .y .dist
  Node knn(op::knn rest = {}, std::string_view provenance = {}) {
    return add(rest, provenance);
  }

  // .to
  Node dequantize_blocks(Value w, op::dequantize_blocks rest = {},
                         std::string_view provenance = {}) {
    rest.w = w;
    return add(rest, provenance);
  }

  // .compute .gate .eps .bias .gamma .residual .want_sum
  Node dequant_matmul(Value x, Value w, op::dequant_matmul rest = {},
                      std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .compute .ids .offsets .p
  Node grouped_dequant_matmul(Value x, Value w, op::grouped_dequant_matmul rest = {},
                              std::string_view provenance = {}) {
    rest.x = x;
    rest.w = w;
    return add(rest, provenance);
  }

  // .to
  Node dequant_rows(Value w, Value ids, op::dequant_rows rest = {},
                    std::string_view provenance = {}) {
    rest.w = w;
    rest.ids = ids;
    return add(rest, provenance);
  }
