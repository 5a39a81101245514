# SPDX-License-Identifier: Apache-2.0
"""Draws a line of text, and reads it with an ONNX model of the package rapidocr.

pip install rapidocr onnx && python ocr.py "any words"
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import tenon


def find_model() -> Path:
    """The model that recognizes lines of text. It comes with the package, which is not imported."""
    package = importlib.util.find_spec("rapidocr")
    if package is None or package.origin is None:
        raise SystemExit("ocr.py: expected the package rapidocr; pip install rapidocr")
    return next((Path(package.origin).parent / "models").glob("*_rec_*.onnx"))


def alphabet(path: Path) -> list[str]:
    """The characters that the classes of the model mean, from its metadata. Class 0 means none."""
    properties = {p.key: p.value for p in onnx.load(str(path), load_external_data=False).metadata_props}
    return ["", *properties["character"].splitlines(), " "]


def draw(text: str) -> Image.Image:
    font = ImageFont.load_default(32)
    left, top, right, bottom = font.getbbox(text)
    page = Image.new("RGB", (int(right - left) + 16, int(bottom - top) + 16), "white")
    ImageDraw.Draw(page).text((8 - left, 8 - top), text, fill="black", font=font)
    return page


def as_input(page: Image.Image) -> NDArray[np.float32]:
    """The picture as the model wants it: [1, 3, 48, width], from -1 to 1, blue first."""
    page = page.resize((round(page.width * 48 / page.height), 48), Image.Resampling.BICUBIC)
    pixels = np.asarray(page, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None]
    return np.ascontiguousarray(pixels / 127.5 - 1)


def main() -> tuple[str, float]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text", nargs="?", default="Plugins run tensor programs", help="what is drawn")
    parser.add_argument("--device", default="auto", help="cpu, cuda:0 [auto]")
    parser.add_argument("--picture", help="write the picture to this file")
    options = parser.parse_args()
    path = find_model()
    characters = alphabet(path)
    model = tenon.load(path, device=options.device)
    print(model)

    page = draw(options.text)
    if options.picture:
        page.save(options.picture)
    scores = model(as_input(page)).numpy()[0]  # [steps, classes]
    best = scores.argmax(1)
    # A character may stay for several steps; class 0 is between equal ones.
    starts = [i for i, c in enumerate(best) if c != 0 and (i == 0 or c != best[i - 1])]
    text = "".join(characters[best[i]] for i in starts)
    certainty = float(np.mean([scores[i, best[i]] for i in starts]))
    print(f"read: {text!r}, {certainty:.1%} certain")
    return text, certainty


if __name__ == "__main__":
    main()
