# SPDX-License-Identifier: Apache-2.0
"""A model on tenon with the interface of ONNX Runtime's InferenceSession, as far as programs around it use that."""
import threading


class Session:
    def __init__(self, tenon, path, described, device="cpu:0"):
        """described: a session of ONNX Runtime for the same file, which describes inputs, outputs and metadata."""
        self.model, self.described, self.runs = tenon.load(path, device=device), described, 0
        self.lock = threading.Lock()  # a context is used by one thread at a time

    def __getattr__(self, name):
        if name in ("get_inputs", "get_outputs", "get_modelmeta", "get_providers"):
            return getattr(self.described, name)
        raise AttributeError(name)

    def run(self, names, feed, _options=None):
        with self.lock:
            outputs = self.model.run(feed)
            self.runs += 1
        return [outputs[name] for name in names or self.model.outputs]
