# SPDX-License-Identifier: Apache-2.0
"""tenon.h for Python: the part that comparisons with other programs need, over ctypes and NumPy.

    tenon = Tenon("build/test/lib/libtenon.so")
    model = tenon.load("model.onnx", device="cpu:0")     # or tenon.parse(text)
    outputs = model.run({"x": array})                    # {name: array}

Every failure is a TenonError with the text of the status. bf16 comes and goes as uint16, for NumPy has none."""
import ctypes
import json

import numpy

INPUT, WEIGHT = 1, 2  # TENON_SPACE_*
DTYPES = {"f32": (1, numpy.float32), "f16": (2, numpy.float16), "bf16": (3, numpy.uint16), "f64": (4, numpy.float64),
          "i8": (5, numpy.int8), "i16": (6, numpy.int16), "i32": (7, numpy.int32), "i64": (8, numpy.int64),
          "u8": (9, numpy.uint8), "u16": (10, numpy.uint16), "u32": (11, numpy.uint32), "u64": (12, numpy.uint64),
          "bool": (15, numpy.bool_), "c64": (16, numpy.complex64), "c128": (19, numpy.complex128)}
NUMPY_OF = {code: numpy.dtype(kind) for code, kind in DTYPES.values()}
CODE_OF = {numpy.dtype(kind): code for name, (code, kind) in DTYPES.items() if name != "bf16"}


class TenonError(RuntimeError):
    pass


class Str(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint64)]

    def __str__(self):
        return ctypes.string_at(self.data, self.size).decode() if self.size else ""


def text(s):
    s = s.encode()
    return Str(s, len(s))


class Sized(ctypes.Structure):
    """A struct that states its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class RuntimeOptions(Sized):
    _fields_ = [("struct_size", ctypes.c_uint64), ("plugin_dirs", ctypes.POINTER(Str)), ("plugin_files", ctypes.POINTER(Str)),
                ("plugin_dir_count", ctypes.c_uint32), ("plugin_file_count", ctypes.c_uint32), ("threads", ctypes.c_uint32),
                ("flags", ctypes.c_uint32)]


class ExecutableOptions(Sized):  # the fields of its first version
    _fields_ = [("struct_size", ctypes.c_uint64), ("device", Str), ("fallback", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("exec_mode", ctypes.c_uint32), ("lanes", ctypes.c_uint32)]


class Tensor(Sized):
    _fields_ = [("struct_size", ctypes.c_uint64), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p), ("size", ctypes.c_uint64),
                ("rank", ctypes.c_uint32), ("dtype", ctypes.c_uint16), ("reserved0", ctypes.c_uint16), ("device", Str),
                ("flags", ctypes.c_uint32), ("reserved1", ctypes.c_uint32)]


class TensorType(Sized):
    _fields_ = [("struct_size", ctypes.c_uint64), ("dtype", ctypes.c_uint16), ("rank", ctypes.c_uint16),
                ("reserved0", ctypes.c_uint32), ("dims", ctypes.c_int64 * 8)]


class ImportOptions(Sized):
    _fields_ = [("struct_size", ctypes.c_uint64), ("trainable", ctypes.POINTER(Str)), ("fixed_names", ctypes.POINTER(Str)),
                ("fixed_tensors", ctypes.POINTER(ctypes.POINTER(Tensor))), ("trainable_count", ctypes.c_uint32),
                ("fixed_count", ctypes.c_uint32)]


def tensor_of(array, code):
    """The description of an array, which must outlive it."""
    dims = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
    return Tensor(dims=dims, data=array.ctypes.data, size=array.nbytes, rank=array.ndim, dtype=code)


class Tenon:
    def __init__(self, library, threads=0):
        self.lib = ctypes.CDLL(str(library))
        for name in ("status_text", "text_str"):
            getattr(self.lib, "tenon_" + name).restype = Str
        for name in ("graph_count", "graph_output_count"):
            getattr(self.lib, "tenon_" + name).restype = ctypes.c_uint32
        self.runtime = self.made("runtime_create", ctypes.byref(RuntimeOptions(threads=threads)))

    def __getattr__(self, name):
        """tenon_NAME, which returns a status."""
        if name == "lib":
            raise AttributeError(name)
        function = getattr(self.lib, "tenon_" + name)
        function.restype = ctypes.c_void_p

        def call(*arguments):
            status = function(*arguments)
            if status:
                what = str(self.lib.tenon_status_text(ctypes.c_void_p(status)))
                self.lib.tenon_status_release(ctypes.c_void_p(status))
                raise TenonError(what)
        self.__dict__[name] = call
        return call

    def made(self, name, *arguments):
        out = ctypes.c_void_p()
        getattr(self, name)(*arguments, ctypes.byref(out))
        return out

    def destroy(self, kind, handle):
        getattr(self.lib, f"tenon_{kind}_destroy")(handle)

    def taken(self, handle):
        """The text of a tenon_text, which is destroyed."""
        out = str(self.lib.tenon_text_str(handle))
        self.destroy("text", handle)
        return out

    def parse(self, graph, weights=None, **options):
        """A graph in the text form. weights: {name: array}."""
        return Model(self, self.made("graph_parse", text(graph), text("graph")), self.made("store_create", self.runtime),
                     weights or {}, **options)

    def load(self, path, constants=None, **options):
        """A model of ONNX. constants: {input: array}."""
        store = self.made("store_create", self.runtime)
        constants = {name: numpy.array(value, order="C") for name, value in (constants or {}).items()}
        tensors = [tensor_of(value, CODE_OF[value.dtype]) for value in constants.values()]
        names = (Str * max(1, len(tensors)))(*map(text, constants))
        pointers = (ctypes.POINTER(Tensor) * max(1, len(tensors)))(*map(ctypes.pointer, tensors))
        given = ImportOptions(fixed_names=names, fixed_tensors=pointers, fixed_count=len(tensors))
        try:
            graph = self.made("graph_import", text(str(path)), ctypes.byref(given), store)
        except TenonError:
            self.destroy("store", store)
            raise
        return Model(self, graph, store, {}, **options)


class Model:
    """A graph, compiled, with its store and one context."""

    def __init__(self, tenon, graph, store, weights, device="cpu:0", deny_fallback=False, exec_mode=0, codes=None):
        """codes: {name: dtype} of inputs and weights whose dtype NumPy lacks."""
        self.tenon, self.graph, self.store, self.codes = tenon, graph, store, codes or {}
        self.executable = self.context = None
        try:
            for name, value in weights.items():
                tenon.store_set(store, WEIGHT, text(name), self.described(name, value))
            options = ExecutableOptions(device=text(device), fallback=int(deny_fallback), exec_mode=exec_mode)
            self.executable = tenon.made("executable_create", tenon.runtime, graph, store, ctypes.byref(options))
            self.context = tenon.made("context_create", self.executable)
        except TenonError:
            self.close()
            raise
        self.inputs, self.outputs = self.names("input"), self.names("output")
        # What a run passes, made once: Python's time would be that of a small model.
        self.texts = {name: text(name) for name in self.inputs + self.outputs}
        self.given, self.type = {}, TensorType()

    def close(self):
        for kind in ("context", "executable", "store", "graph"):
            self.tenon.destroy(kind, getattr(self, kind))
            setattr(self, kind, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def names(self, kind):
        lib, out = self.tenon.lib, []
        count = lib.tenon_graph_count(self.graph, INPUT) if kind == "input" else lib.tenon_graph_output_count(self.graph)
        for k in range(count):
            name, value, flag = Str(), ctypes.c_uint32(), ctypes.c_uint32()
            if kind == "input":
                self.tenon.graph_name(self.graph, INPUT, k, ctypes.byref(name), ctypes.byref(value), ctypes.byref(flag))
            else:
                self.tenon.graph_output_name(self.graph, k, ctypes.byref(name), ctypes.byref(value))
            out.append(str(name))
        return out

    def described(self, name, value):
        self.kept = value = numpy.array(value, order="C", copy=None)
        code = DTYPES[self.codes[name]][0] if name in self.codes else CODE_OF[value.dtype]
        return ctypes.byref(tensor_of(value, code))

    def set(self, feed):
        for name, value in feed.items():
            given = self.given.get(name)
            if given and given[0] == value.shape and given[1] == value.dtype and value.flags.c_contiguous:
                given[2].data = value.__array_interface__["data"][0]
            else:
                described = self.described(name, value)
                given = self.given[name] = (value.shape, value.dtype, described._obj, described, self.kept)
            self.tenon.context_set(self.context, self.texts[name], given[3])

    def start(self):
        self.tenon.context_run(self.context)

    def get(self, name):
        out = self.type
        self.tenon.context_output_type(self.context, self.texts[name], ctypes.byref(out))
        array = numpy.empty(tuple(out.dims[:out.rank]), NUMPY_OF[out.dtype])
        self.tenon.context_get(self.context, self.texts[name], ctypes.c_void_p(array.__array_interface__["data"][0]),
                               ctypes.c_uint64(array.nbytes))
        return array

    def run(self, feed):
        self.set(feed)
        self.start()
        return {name: self.get(name) for name in self.outputs}

    def report(self, **symbols):
        """What became of each node: see tenon_executable_report()."""
        names = (Str * max(1, len(symbols)))(*map(text, symbols))
        numbers = (ctypes.c_int64 * max(1, len(symbols)))(*symbols.values())
        return json.loads(self.tenon.taken(self.tenon.made("executable_report", self.executable, names, numbers, len(symbols))))
