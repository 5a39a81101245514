# SPDX-License-Identifier: Apache-2.0
"""Folders with quantized weights against the same folders with the numbers that these weights stand for: logits on the cpu.

quantized.py LLM_PROBE TENON"""
import array, json, math, pathlib, struct, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

PROBE, TENON = sys.argv[1:]
IDS = [1, 70, 12, 200, 33, 5, 99, 41, 7, 180, 64, 3]
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the outputs in a word of AWQ
failures = []


def read(file):
    """Name -> (dims, f32 numbers)."""
    data = file.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    at = lambda t: array.array("f", data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
    return {name: (t["shape"], at(t)) for name, t in header.items()}


def write(file, tensors):
    """tensors: name -> (dtype, dims, bytes)"""
    header, data = {}, b""
    for name, (dtype, dims, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def halves(numbers):
    return struct.pack(f"<{len(numbers)}e", *numbers)


def words(numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def as_half(number):
    return struct.unpack("<e", struct.pack("<e", number))[0]


def as_float(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    size = math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)
    return -size if code & 128 else size


FINITE = sorted((e4m3(code), code) for code in range(256) if code & 127 != 127)


def nearest(number):
    """The code of f8e4m3 next to a number."""
    low, high = 0, len(FINITE) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if FINITE[middle][0] <= number else (low, middle)
    return min(FINITE[low], FINITE[high], key=lambda pair: abs(pair[0] - number))[1]


def fp8(block_rows, block_columns, scale_name, scale_dims):
    """Blocks of None rows or columns have all of them."""

    def encode(name, dims, w):
        rows, columns = dims
        high, wide = block_rows or rows, block_columns or columns
        across = -(-columns // wide)
        largest = [0.0] * (-(-rows // high) * across)
        for r in range(rows):
            for c in range(columns):
                at = r // high * across + c // wide
                largest[at] = max(largest[at], abs(w[r * columns + c]))
        scales = [as_float(v / 448) for v in largest]
        codes, numbers = bytearray(), []
        for r in range(rows):
            for c in range(columns):
                scale = scales[r // high * across + c // wide]
                codes.append(nearest(w[r * columns + c] / scale))
                numbers.append(as_float(e4m3(codes[-1]) * scale))
        return {name: ("F8_E4M3", dims, bytes(codes)),
                name + scale_name: ("F32", scale_dims(len(scales), across), floats(scales))}, numbers

    return encode


def ints(name, dims, w):
    """compressed-tensors: i8 and a scale for each row."""
    rows, columns = dims
    scales = [as_float(max(map(abs, w[r * columns:(r + 1) * columns])) / 127) for r in range(rows)]
    levels = [round(w[i] / scales[i // columns]) for i in range(rows * columns)]
    return {name: ("I8", dims, struct.pack(f"<{len(levels)}b", *levels)),
            name + "_scale": ("F32", [rows, 1], floats(scales))}, \
        [as_float(q * scales[i // columns]) for i, q in enumerate(levels)]


def packed(bits, group, symmetric, minus_one=False, awq=False, order=True):
    per, most = 32 // bits, 2**bits - 1

    def encode(name, dims, w):
        rows, columns = dims
        size = columns if group < 0 else group
        groups = -(-columns // size)
        scales, zeros, levels, numbers = [0.0] * (groups * rows), [0] * (groups * rows), [0] * len(w), [0.0] * len(w)
        for r in range(rows):
            for g in range(groups):
                part = range(r * columns + g * size, r * columns + min((g + 1) * size, columns))
                low, high = min(0.0, *(w[i] for i in part)), max(0.0, *(w[i] for i in part))
                if symmetric:
                    scale, zero = as_half(2 * max(-low, high) / most), (most + 1) // 2
                else:
                    scale = as_half((high - low) / most)
                    zero = max(1, min(most, round(-low / scale)))
                scales[g * rows + r], zeros[g * rows + r] = scale, zero
                for i in part:
                    levels[i] = max(0, min(most, round(w[i] / scale) + zero))
                    numbers[i] = (levels[i] - zero) * scale
        shift = [4 * ORDER.index(k) for k in range(8)] if awq else [bits * k for k in range(per)]
        stored = [0] * (groups * rows // per)
        for i, zero in enumerate(zeros):
            stored[i // per] |= zero - minus_one << shift[i % per]
        if awq:
            weight, weight_dims = [0] * (columns * rows // per), [columns, rows // per]
            for r in range(rows):
                for c in range(columns):
                    weight[c * (rows // per) + r // per] |= levels[r * columns + c] << shift[r % per]
        else:
            weight, weight_dims = [0] * (columns // per * rows), [columns // per, rows]
            for r in range(rows):
                for c in range(columns):
                    weight[c // per * rows + r] |= levels[r * columns + c] << shift[c % per]
        module = name.removesuffix("weight")
        out = {module + "qweight": ("I32", weight_dims, words(weight)),
               module + "qzeros": ("I32", [groups, rows // per], words(stored)),
               module + "scales": ("F16", [groups, rows], halves(scales))}
        if order and not awq:
            out[module + "g_idx"] = ("I32", [columns], words([c // size for c in range(columns)]))
        return out, numbers

    return encode


def pack_quantized(bits, group, shape=True):
    """compressed-tensors: words along inputs, a scale for each group of a row."""
    per, middle = 32 // bits, 2**(bits - 1)

    def encode(name, dims, w):
        rows, columns = dims
        size = columns if group < 0 else group
        groups = -(-columns // size)
        scales, stored, numbers = [], [0] * (rows * -(-columns // per)), []
        for r in range(rows):
            row = w[r * columns:(r + 1) * columns]
            scales += [as_half(max(map(abs, row[g * size:(g + 1) * size])) / (middle - 1)) for g in range(groups)]
            for c, value in enumerate(row):
                scale = scales[r * groups + c // size]
                level = max(-middle, min(middle - 1, round(value / scale)))
                stored[r * -(-columns // per) + c // per] |= level + middle << bits * (c % per)
                numbers.append(level * scale)
        module = name.removesuffix("weight")
        out = {module + "weight_packed": ("I32", [rows, -(-columns // per)], words(stored)),
               module + "weight_scale": ("F16", [rows, groups], halves(scales))}
        if shape:
            out[module + "weight_shape"] = ("I64", [2], struct.pack("<2q", rows, columns))
        return out, numbers

    return encode


def probe(folder, *options):
    ids, logits = pathlib.Path(f"{folder}.ids"), pathlib.Path(f"{folder}.logits")
    ids.write_text(" ".join(map(str, IDS)))
    subprocess.run([PROBE, folder, ids, logits, "cpu", "prefill", *options], check=True)
    return array.array("f", logits.read_bytes())


def convert(name, coded, plain, expected):
    """GGUF files and plain folders that are made of a quantized folder and of the one with its numbers have the same logits."""
    for end, kind in ((".gguf", None), ("_f32", "F32"), (".f16.gguf", "F16"), ("_bf16", "BF16")):
        logits = []
        for source in (coded, plain) if kind in ("F16", "BF16") else (coded,):
            target = (f"{source}{end}", *(() if end.endswith(".gguf") else ("--force",)))
            done = subprocess.run([TENON, "llm", "convert", source, *target, *(("--type", kind) if kind else ())],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{name} to {kind}: {done.stderr}")
            logits.append(probe(f"{source}{end}", "--products", "f32"))
        error = max(abs(a - b) for a, b in zip(logits[0], logits[1] if len(logits) > 1 else expected, strict=True))
        if error > 1e-5 * max(map(abs, expected)):
            print(f"BAD {name} to {kind}: error {error:.1e}")
            failures.append(name)
    # Weights whose numbers blocks have are these blocks.
    blocks = next((b for b in ("q4_0", "q5_0", "q8_0") if name.endswith(b)), None)
    types = subprocess.run([TENON, "inspect", f"{coded}.gguf"], capture_output=True, text=True).stdout
    if blocks and types.lower().count(blocks) < 7:
        print(f"BAD {name}: expected {blocks} in {types}")
        failures.append(name)


def compare(name, config, encode, place):
    """A folder that encode() quantizes, and one with the numbers that the weights stand for."""
    coded, plain = pathlib.Path(place, name), pathlib.Path(place, name + "_plain")
    in_f8 = name.endswith("_f8")  # rows of whole blocks of 128 numbers: weights stay e4m3
    sizes = dict(hidden=128, ffn=256) if in_f8 else dict(hidden=64, ffn=96)
    for folder in (coded, plain):
        tiny_model.make(folder, **sizes, kv_heads=2, context=64)
    whole, codes = {}, {}
    for tensor, (dims, numbers) in read(plain / "model.safetensors").items():
        parts = {tensor: ("F32", dims, numbers.tobytes())}
        if "_proj." in tensor:
            parts, numbers = encode(tensor, dims, numbers)
        whole[tensor] = ("F32", dims, floats(numbers))
        codes |= parts
    write(plain / "model.safetensors", whole)
    write(coded / "model.safetensors", codes)
    settings = json.loads((coded / "config.json").read_text())
    (coded / "config.json").write_text(json.dumps(settings | {"quantization_config": config}))
    mine, other = probe(coded, "--products", "f32"), probe(plain)
    convert(name, coded, plain, other)
    scale = max(map(abs, other))
    error = max(abs(a - b) for a, b in zip(mine, other, strict=True)) / scale
    rounded = math.sqrt(sum((a - b) ** 2 for a, b in zip(probe(coded, "--products", "int8"), other)) /
                        sum(b * b for b in other))
    # Activations are not rounded beside floats.
    good = scale > 0.1 and error <= 1e-5 and rounded <= (1e-5 if in_f8 else 0.05)
    print(f"{'ok ' if good else 'BAD'} {name}: error {error:.1e} of {scale:.2f}, with rounded activations {rounded:.1e}", flush=True)
    if not good:
        failures.append(name)


def main():
    grid = lambda count, across: [count // across, across]
    compressed = lambda kind, strategy, **more: {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "ignore": ["lm_head"], "kv_cache_scheme": None,
        "format": f"{kind}-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "output_activations": None, "input_activations": {"num_bits": 8, "dynamic": True},
            "weights": {"num_bits": 8, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False,
                        "group_size": None, "actorder": None, "observer": "minmax", **more}}}}
    gptq = lambda bits, group, **more: {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": True,
                                        "damp_percent": 0.01, "true_sequential": True} | more
    awq = lambda group: {"quant_method": "awq", "bits": 4, "group_size": group, "version": "GEMM", "zero_point": True,
                         "modules_to_not_convert": None}
    cases = {
        "fp8_blocks": ({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [40, 48]},
                       fp8(40, 48, "_scale_inv", grid)),
        "fp8_one": ({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
                    fp8(None, None, "_scale", lambda count, across: [])),
        "fp8_default": ({"quant_method": "fp8"}, fp8(128, 128, "_scale_inv", grid)),
        "fp8_blocks_f8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8(128, 128, "_scale_inv", grid)),
        "fp8_high_blocks_f8": ({"quant_method": "fp8", "weight_block_size": [48, 128]}, fp8(48, 128, "_scale_inv", grid)),
        "fp8_one_f8": ({"quant_method": "fp8", "weight_block_size": None}, fp8(None, None, "_scale", lambda count, across: [])),
        "compressed_channel_f8": (compressed("float", "channel"), fp8(1, None, "_scale", lambda count, across: [count, 1])),
        "fbgemm": ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
                   fp8(1, None, "_scale", lambda count, across: [count, 1])),
        "compressed_channel": (compressed("float", "channel"), fp8(1, None, "_scale", lambda count, across: [count, 1])),
        "compressed_block": (compressed("float", "block", block_structure=[32, 16]), fp8(32, 16, "_scale", grid)),
        "compressed_int": (compressed("int", "channel"), ints),
        "gptq_q4_0": (gptq(4, 32), packed(4, 32, True, True)),
        "gptq_q5_0": (gptq(4, 32, sym=False, checkpoint_format="gptq"), packed(4, 32, False, True, order=False)),
        "gptq_v2": (gptq(4, -1, sym=False, checkpoint_format="gptq_v2"), packed(4, -1, False)),
        "gptq_plain": (gptq(4, 16), packed(4, 16, True, True)),
        "gptq_q8_0": (gptq(8, 64, desc_act=True), packed(8, 64, True, True)),
        "gptq_8_asym": (gptq(8, 32, sym=False), packed(8, 32, False, True)),
        "packed_q4_0": (compressed("pack", "group", num_bits=4, type="int", group_size=32, actorder="weight"), pack_quantized(4, 32)),
        "packed_rows": (compressed("pack", "channel", num_bits=4, type="int"), pack_quantized(4, -1, shape=False)),
        "packed_8_q8_0": (compressed("pack", "channel", type="int"), pack_quantized(8, -1)),
        "packed_plain": (compressed("pack", "group", num_bits=4, type="int", group_size=12), pack_quantized(4, 12)),
        "awq": (awq(32), packed(4, 32, False, awq=True)),
        "awq_plain": (awq(16), packed(4, 16, False, awq=True)),
    }
    with tempfile.TemporaryDirectory() as place:
        for name, (config, encode) in cases.items():
            compare(name, config, encode, place)
        # A model of its own is not written over.
        done = subprocess.run([TENON, "llm", "convert", f"{place}/awq", f"{place}/awq"], capture_output=True, text=True)
        if done.returncode == 0 or "expected another folder" not in done.stderr:
            failures.append(f"same folder: {done}")
        # The command opens such folders, too, and names what it refuses.
        run = lambda folder: subprocess.run([TENON, "llm", "run", folder, "--device", "cpu", "--ids", "1,2", "--tokens", "3",
                                             "--ignore-end"], capture_output=True, text=True)
        done = run(f"{place}/awq")
        if done.returncode != 0 or len(done.stdout.strip().split(",")) != 3:
            failures.append(f"run: {done}")
        config = pathlib.Path(place, "awq", "config.json")
        config.write_text(config.read_text().replace("GEMM", "gemv"))
        done = run(f"{place}/awq")
        if done.returncode == 0 or "quantization_config: 'version' is not supported" not in done.stderr:
            failures.append(f"refusal: {done}")
    if failures:
        sys.exit(f"failed: {failures}")


main()
