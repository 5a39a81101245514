# SPDX-License-Identifier: Apache-2.0
"""Twelve small modules of PyTorch, with arguments. The tests and tests/bench/python_torch.py use them."""

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Tanh(),
            nn.Linear(width, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y)


class ResNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    Residual(widths[i], widths[i + 1], 1 if i == 0 else 2), Residual(widths[i + 1], widths[i + 1], 1)
                )
                for i in range(4)
            )
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


class ViT(nn.Module):
    def __init__(self, width=64, layers=2, image=32, patch=8):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.encoder(x))[:, 0])


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2, which returns its loss. The head is tied to the embedding."""

    def __init__(self, width=64, heads=4, layers=2, words=100, length=64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.head.weight.data.mul_(0.1)

    def forward(self, ids, labels):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def forward(self, x, cos, sin, mask, past):
        b, t, _ = x.shape
        h = self.norm1(x)
        q = self.q(h).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(h).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        times = self.heads // self.kv_heads
        wide = [z[:, :, None].expand(-1, -1, times, -1, -1).reshape(b, self.heads, -1, self.size) for z in (k, v)]
        y = F.scaled_dot_product_attention(q, *wide, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), (k, v)


class Llama(nn.Module):
    """With a cache: takes and returns the keys and values of earlier tokens."""

    def __init__(self, width=64, heads=4, kv_heads=2, layers=2, words=100):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-6), nn.Linear(width, words, bias=False)
        size = width // heads
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, size, 2).float() / size), persistent=False)

    def forward(self, ids, cache):
        t, before = ids.shape[1], cache[0][0].shape[2]
        places = torch.arange(before, before + t, device=ids.device)
        angles = torch.outer(places.float(), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        mask = torch.full((t, before + t), float("-inf")).triu(1 + before)
        x, after = self.words(ids), []
        for block, past in zip(self.blocks, cache):
            x, kept = block(x, angles.cos(), angles.sin(), mask, past)
            after.append(kept)
        return {"logits": self.head(self.norm(x)), "cache": after}


class Lstm(nn.Module):
    def __init__(self, words=50, width=32):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, ids):
        x, (h, c) = self.lstm(self.words(ids))
        x, _ = self.gru(x)
        return self.head(x[:, -1]), h, c


def twice(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2, self.middle = twice(3, width), twice(width, 2 * width), twice(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * width, width, 1))
        self.join2, self.join1 = twice(4 * width, 2 * width), twice(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.join2(torch.cat([b, self.up2(c)], 1))
        return self.head(self.join1(torch.cat([a, self.up1(b)], 1)))


class AutoEncoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ELU(),
            nn.AvgPool2d(2),
        )
        self.decode = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1), nn.SiLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        code = self.encode(x)
        y = self.decode(code)
        return F.mse_loss(y, x)


class Experts(nn.Module):
    """A mixture of experts: the two best of four for each token."""

    def __init__(self, width=32, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.1)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.1)

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        best, chosen = scores.topk(2, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best)
        h = F.silu(torch.einsum("btc,ecd->betd", x, self.up))
        y = torch.einsum("betd,edc->betc", h, self.down)
        return torch.einsum("betc,bte->btc", y, weights), scores.mean((0, 1))


class GroupNormNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding="same"), nn.GroupNorm(4, width), nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1, groups=width), nn.InstanceNorm2d(width, affine=True), nn.Hardswish(),
            nn.Conv2d(width, 2 * width, 3, 2, dilation=2), nn.GroupNorm(1, 2 * width), nn.ReLU6(),
            nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(18 * width, 7)

    def forward(self, x):
        return F.log_softmax(self.head(self.layers(x)), dim=1)


class Bag(nn.Module):
    def __init__(self, words=100, width=32):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width, mode="mean")
        self.head = nn.Linear(width, 4)

    def forward(self, ids, offsets):
        return self.head(self.bag(ids, offsets))


class Masked(nn.Module):
    """Attention with masks of two kinds: causal, and of what is padding."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, padding):
        t = x.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).triu(1)
        y, weights = self.attention(x, x, x, key_padding_mask=padding, attn_mask=causal)
        return self.norm(x + y).masked_fill(padding[..., None], 0.0), weights


def modules(scale=1):
    """Name, module in eval mode, arguments. scale: how much larger than the tests need."""
    torch.manual_seed(0)
    s = scale

    def ids(n, *shape):
        return torch.randint(0, n, shape)

    cache = [(torch.randn(2, 2, 5, 16 * s), torch.randn(2, 2, 5, 16 * s)) for _ in range(2)]
    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[1, 9:] = True
    cases = [
        ("mlp", Mlp(64 * s), (torch.randn(8 * s, 64 * s),)),
        ("resnet", ResNet(16 * s), (torch.randn(2, 3, 32 * s, 32 * s),)),
        ("vit", ViT(64 * s, image=32 * s), (torch.randn(2, 3, 32 * s, 32 * s),)),
        ("gpt", Gpt(64 * s), (ids(100, 2, 16 * s), ids(100, 2, 16 * s))),
        ("llama", Llama(64 * s), (ids(100, 2, 8), cache)),
        ("lstm", Lstm(width=32 * s), (ids(50, 4, 10 * s),)),
        ("unet", UNet(8 * s), (torch.randn(1, 3, 16 * s, 16 * s),)),
        ("autoencoder", AutoEncoder(16 * s), (torch.rand(2, 1, 32 * s, 32 * s),)),
        ("experts", Experts(32 * s), (torch.randn(2, 6 * s, 32 * s),)),
        ("group_norm", GroupNormNet(16 * s), (torch.randn(2, 3, 20 * s, 20 * s),)),
        ("bag", Bag(width=32 * s), (ids(100, 24 * s), torch.tensor([0, 5, 5, 11]))),
        ("masked", Masked(32 * s), (torch.randn(2, 12, 32 * s), padding)),
    ]
    return [(name, module.eval(), arguments) for name, module, arguments in cases]
