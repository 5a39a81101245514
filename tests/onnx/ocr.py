#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ocr.py LIBTENON FOLDER [--device cpu:0] [--picture FILE.png]

Reads text from a picture by the whole pipeline of the package rapidocr: detection, extraction of boxes, classification of
upside-down lines, recognition. Its three models run once on ONNX Runtime and once on tenon. Both must read the text that
the picture was drawn with, and find the same boxes.

The package is installed into FOLDER if Python does not have it. Exits with 77 (skip) without NumPy, Pillow or onnxruntime,
or if the package cannot be had."""
import argparse
import pathlib
import subprocess
import sys

SKIP = 77
PACKAGE = "rapidocr==3.10.0"
MODELS = {"text_det": "PP-OCRv6_det_small.onnx", "text_cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
          "text_rec": "PP-OCRv6_rec_small.onnx"}
STRAIGHT = ["Plugins run tensor programs", "Backends: 2, kernels: 481"]
SLANTED, TURNED = "slanted by degrees", "Every value has one name"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def package(folder):
    try:
        import rapidocr
        return rapidocr
    except ImportError:
        pass
    sys.path.append(str(folder))
    if not (folder / "rapidocr").is_dir():
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, PACKAGE],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            skip(f"{PACKAGE}: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
    try:
        import rapidocr
        return rapidocr
    except ImportError as e:
        skip(f"{PACKAGE}: {e}")


def picture():
    from PIL import Image, ImageDraw, ImageFont
    font = ImageFont.load_default(32)  # the font that comes with Pillow

    def line(words):
        left, top, right, bottom = font.getbbox(words)
        out = Image.new("RGB", (int(right - left) + 24, int(bottom - top) + 24), "white")
        ImageDraw.Draw(out).text((12 - left, 12 - top), words, fill="black", font=font)
        return out
    page = Image.new("RGB", (640, 440), "white")
    for k, words in enumerate(STRAIGHT):
        page.paste(line(words), (28, 20 + 60 * k))
    page.paste(line(SLANTED).rotate(14, expand=True, fillcolor="white", resample=Image.Resampling.BICUBIC), (40, 150))
    page.paste(line(TURNED).rotate(180), (150, 340))
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--picture", help="write the picture to this file")
    options = parser.parse_args()
    try:
        import numpy
        import onnxruntime  # noqa: F401
        import PIL  # noqa: F401
    except ImportError as e:
        skip(e)
    rapidocr = package(options.folder)
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
    import binding
    from session import Session

    page = picture()
    if options.picture:
        page.save(options.picture)
    pixels = numpy.ascontiguousarray(numpy.asarray(page)[:, :, ::-1])
    engine = rapidocr.RapidOCR(params={"Global.log_level": "error"})
    want = engine(pixels)  # which also loads the models
    tenon = binding.Tenon(options.library)
    sessions = []
    for part, file in MODELS.items():
        holder = getattr(engine, part).session
        path = pathlib.Path(rapidocr.__file__).parent / "models" / file
        holder.session = Session(tenon, path, holder.session, options.device)
        sessions.append(holder.session)
    got = engine(pixels)

    failed = []

    def check(holds, what):
        print(f"{'ok ' if holds else 'BAD'} {what}")
        if not holds:
            failed.append(what)
    for part, session in zip(MODELS, sessions):
        check(session.runs > 0, f"{part}: {session.runs} runs on tenon, {options.device}")
    expected = STRAIGHT + [SLANTED, TURNED]
    check(list(got.txts or []) == expected, f"tenon reads {list(got.txts or [])}, drawn were {expected}")
    check(list(want.txts or []) == expected, f"ONNX Runtime reads {list(want.txts or [])}")
    if want.boxes is not None and got.boxes is not None and want.boxes.shape == got.boxes.shape:
        apart = float(numpy.abs(want.boxes - got.boxes).max())
        check(apart == 0, f"{len(got.boxes)} boxes, corners at most {apart:g} pixels apart")
        scores = float(numpy.abs(numpy.asarray(want.scores) - numpy.asarray(got.scores)).max())
        check(scores <= 1e-3, f"scores {[round(float(s), 3) for s in got.scores]}, at most {scores:.1e} apart")
    else:
        check(False, f"boxes: {got.boxes}, by ONNX Runtime {want.boxes}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
