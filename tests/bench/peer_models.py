# SPDX-License-Identifier: Apache-2.0
"""Models of PyTorch with random weights, as gpu_models.py compares them: ResNet-50, BERT-base, a U-Net."""
import collections

import torch
from torch import nn
from torch.nn import functional

BERT = {"words": 30522, "positions": 512, "kinds": 2, "width": 768, "layers": 12, "heads": 12, "inner": 3072}


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.short = None
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (self.short(x) if self.short else x))


class ResNet50(nn.Module):
    """Its bottlenecks have their stride in the 3x3 convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, before = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for k in range(count):
                blocks.append(Bottleneck(before, width, stride if k == 0 else 1))
                before = 4 * width
        self.blocks, self.last = nn.Sequential(*blocks), nn.Linear(before, 1000)

    def forward(self, x):
        y = functional.max_pool2d(functional.relu(self.bn(self.conv(x))), 3, 2, 1)
        return self.last(functional.adaptive_avg_pool2d(self.blocks(y), 1).flatten(1))


class BertLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(x + self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """The encoder with its embeddings. mask: 1 for tokens, 0 for padding."""

    def __init__(self, words, positions, kinds, width, layers, heads, inner):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.kinds, self.norm = nn.Embedding(kinds, width), nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads, inner) for _ in range(layers))

    def forward(self, tokens, mask):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens)))
        added = torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill(mask == 0, torch.finfo(x.dtype).min)
        for layer in self.layers:
            x = layer(x, added[:, None, None, :])
        return x


class UNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()

        def double(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, 1, 1), nn.ReLU(), nn.Conv2d(after, after, 3, 1, 1), nn.ReLU())
        self.down = nn.ModuleList(double(a, b) for a, b in zip((3, *widths), widths))
        back = list(zip(widths[::-1], widths[-2::-1]))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in back)
        self.up = nn.ModuleList(double(a, b) for a, b in back)
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for k, double in enumerate(self.down):
            x = double(functional.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for grow, double, beside in zip(self.grow, self.up, kept[-2::-1]):
            x = double(torch.cat([beside, grow(x)], 1))
        return self.last(x)


Case = collections.namedtuple("Case", "model batch length")  # length: tokens, or pixels of a line
CASES = {"resnet50_1": Case("resnet50", 1, 224), "resnet50_64": Case("resnet50", 64, 224),
         "bert_1x128": Case("bert", 1, 128), "bert_1x512": Case("bert", 1, 512),
         "bert_32x128": Case("bert", 32, 128), "bert_32x512": Case("bert", 32, 512), "unet_8": Case("unet", 8, 128)}


def randomize(model):
    """Weights that keep the size of what passes, and statistics of norms that do something."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, 0, 0.5)
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            nn.init.uniform_(module.weight, 0.3, 0.7)
            nn.init.normal_(module.bias, 0, 0.1)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)


def make(name, seed=1):
    """A case's model in f32, in evaluation mode."""
    torch.manual_seed(seed)
    kind = CASES[name].model
    model = ResNet50() if kind == "resnet50" else UNet() if kind == "unet" else Bert(**BERT)
    randomize(model)
    return model.eval()


def inputs(name, dtype, device, seed=2):
    """{name: tensor} of a case. Sequences end in padding of different lengths."""
    case = CASES[name]
    numbers = torch.Generator().manual_seed(seed)
    if case.model != "bert":
        return {"x": torch.randn(case.batch, 3, case.length, case.length, generator=numbers).to(device, dtype)}
    tokens = torch.randint(0, BERT["words"], (case.batch, case.length), generator=numbers)
    ends = case.length - torch.arange(case.batch) % 8 * (case.length // 16)
    mask = (torch.arange(case.length) < ends[:, None]).long()
    return {"tokens": tokens.to(device), "mask": mask.to(device)}


def is_real(name, given):
    """Which positions of the output count: not those of padding."""
    return given["mask"].bool() if CASES[name].model == "bert" else slice(None)
