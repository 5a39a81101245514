# SPDX-License-Identifier: Apache-2.0
"""Draws from the candidates that a step selects give the tokens of draws from all logits (draws.cpp).

draws.py LLM_DRAWS [DEVICE]"""
import pathlib, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

with tempfile.TemporaryDirectory() as place:
    tiny_model.make(pathlib.Path(place), context=256, deviation=0.3, logits=3001)
    sys.exit(subprocess.run([sys.argv[1], place, *sys.argv[2:]]).returncode)
