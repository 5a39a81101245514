# SPDX-License-Identifier: Apache-2.0
"""llama_convert.py LLAMA_SOURCE FOLDER FILE TYPE: runs llama.cpp's converter of Hugging Face folders on a folder without a
tokenizer, for llama_cpp.py. The converter would refuse such a folder."""
import runpy
import sys

source, folder, file, kind = sys.argv[1:]
sys.path[:1] = [source, f"{source}/gguf-py"]
import conversion


def no_tokenizer(model):
    model._set_vocab_none()
    if model.gguf_writer.arch != "llama":  # that one has the key already
        model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])


found = conversion.get_model_class


def model_class(*args, **more):
    out = found(*args, **more)
    out.set_vocab = no_tokenizer
    return out


conversion.get_model_class = model_class
sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", file, "--outtype", kind]
runpy.run_path(f"{source}/convert_hf_to_gguf.py", run_name="__main__")
