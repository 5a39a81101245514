# SPDX-License-Identifier: Apache-2.0
"""Rules for attention, and for the ops that PyTorch has for whole layers of it in inference."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._dtypes import DType
from .._tenon import Value
from ._build import Translator, rule
from ._ops_nn import linear


def _heads(b: Translator, x: Value) -> Value:
    """[..., S, D] as [B, H, S, D]."""
    dims = b.shape(x)
    if len(dims) == 4:
        return x
    lead = [1, 1, *dims[:-2]]
    return b.reshape(x, [math.prod(lead[:-1]), lead[-1], *dims[-2:]])


@rule("scaled_dot_product_attention")
def _attention(
    b: Translator,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if dropout:
        return b.refuse("dropout. hint: module.eval()")
    dims = b.shape(q)
    lead = list(np.broadcast_shapes(*(tuple(b.shape(t)[: -3 if len(dims) > 2 else -2]) for t in (q, k, v))))
    if len(dims) > 2:
        q, k, v = (b.expand(t, lead + b.shape(t)[-3:]) for t in (q, k, v))
    if mask is not None:
        if mask.dtype != DType.bool:
            mask = b.cast(mask, q.dtype)
        if len(b.shape(q)) != 4 and len(b.shape(mask)) > 2:
            mask = _heads(b, b.expand(mask, b.shape(q)[:-2] + b.shape(mask)[-2:]))
    o = b.add(
        "attention",
        [_heads(b, q), _heads(b, k), _heads(b, v), mask, None, None],
        [True, False],
        scale=None if scale is None else float(scale),
        causal=is_causal,
    )[0]
    shape = b.shape(q)[:-1] + b.shape(v)[-1:]
    return b.reshape(o, shape)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    b: Translator,
    q: Value,
    k: Value,
    v: Value,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Any:
    if dropout:
        return b.refuse("dropout. hint: module.eval()")
    mask = attn_mask if attn_mask is None or attn_mask.dtype == DType.bool else b.cast(attn_mask, q.dtype)
    return tuple(
        b.add(
            "attention",
            [q, k, v, mask, None, None],
            [True, True],
            scale=None if scale is None else float(scale),
            causal=is_causal,
        )
    )


# ---- Layers that PyTorch computes by one op


def _permitted(b: Translator, mask: Value, kind: int | None, heads: list[int]) -> Value:
    """The mask of a layer, where true forbids, as one of the op attention. heads: B, H, Sq, Sk.

    kind: 0 = [Sq, Sk], 1 = [B, Sk], 2 = [B, H, Sq, Sk].
    """
    dims = b.shape(mask)
    if kind == 1 or (kind is None and dims == [heads[0], heads[3]]):
        mask = b.reshape(mask, [dims[0], 1, 1, dims[1]])
    return b.add("logical", [b.cast(mask, DType.bool)], kind="not")


@rule("_native_multi_head_attention")
def _multi_head(
    b: Translator, q: Value, k: Value, v: Value, width: int, heads: int, qkv_weight: Value, qkv_bias: Value,
    out_weight: Value, out_bias: Value, mask: Value | None = None, need_weights: bool = True, average: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    if need_weights:
        return b.refuse("the weights of attention. hint: need_weights=False, or torch.enable_grad()")
    parts = []
    for i, x in enumerate((q, k, v)):
        weight, bias = (b.narrow(t, 0, i * width, width) for t in (qkv_weight, qkv_bias))
        rows, length, _ = b.shape(x)
        y = b.reshape(linear(b, x, weight, bias), [rows, length, heads, width // heads])
        parts.append(b.transpose(y, [0, 2, 1, 3]))
    shape = b.shape(parts[0])[:3] + [b.shape(parts[1])[2]]
    permitted = None if mask is None else _permitted(b, mask, mask_type, shape)
    o = b.add("attention", [*parts, permitted, None, None], [True, False])[0]
    y = b.reshape(b.transpose(o, [0, 2, 1, 3]), [*b.shape(q)[:2], width])
    return linear(b, y, out_weight, out_bias), None


@rule("_transformer_encoder_layer_fwd")
def _encoder_layer(
    b: Translator, x: Value, width: int, heads: int, qkv_weight: Value, qkv_bias: Value, out_weight: Value,
    out_bias: Value, use_gelu: bool, norm_first: bool, eps: float, gamma1: Value, beta1: Value, gamma2: Value,
    beta2: Value, up_weight: Value, up_bias: Value, down_weight: Value, down_bias: Value, mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:  # fmt: skip
    def norm(t: Value, gamma: Value, beta: Value) -> Value:
        return b.add("layer_norm", [t, gamma, beta], [True, False, False], eps=eps)[0]

    def attend(t: Value) -> Value:
        found = _multi_head(
            b, t, t, t, width, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask, False, True, mask_type
        )
        return found[0]

    def feed_forward(t: Value) -> Value:
        h = b.unary("gelu" if use_gelu else "relu", linear(b, t, up_weight, up_bias))
        return linear(b, h, down_weight, down_bias)

    if norm_first:
        x = b.binary("add", x, attend(norm(x, gamma1, beta1)))
        return b.binary("add", x, feed_forward(norm(x, gamma2, beta2)))
    x = norm(b.binary("add", x, attend(x)), gamma1, beta1)
    return norm(b.binary("add", x, feed_forward(x)), gamma2, beta2)
