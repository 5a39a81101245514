# SPDX-License-Identifier: Apache-2.0
"""PyTorch in tenon: modules as functions of tenon, and the backend "tenon" of torch.compile. Needs PyTorch."""

from torch._dynamo.backends.registry import list_backends, register_backend

from ._compile import compile_backend
from ._module import Module, from_torch

__all__ = ["Module", "compile_backend", "from_torch"]

if "tenon" not in list_backends():  # the entry point of the installed package may be known already
    register_backend(compile_backend, name="tenon")
