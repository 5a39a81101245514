# SPDX-License-Identifier: Apache-2.0
"""Rules for ops of ATen that solve systems of equations and factor matrices."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._dtypes import DType
from .._tenon import Value
from ._build import Translator, rule

# The ops *_ex give NaN for a singular matrix, or its factors; the others fail when they run.
_POLICY = {True: "error", False: "nan"}
_MOST_SWAPS = 64  # a few nodes for each


def _swapped(b: Translator, x: Value) -> Value:
    rank = len(b.shape(x))
    return b.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _diagonal(b: Translator, x: Value) -> Value:
    """Of square matrices."""
    *rest, size, _ = b.shape(x)
    flat = b.reshape(x, [*rest, size * size])
    return b.narrow(flat, len(rest), 0, size, size + 1)


def _lu_info(b: Translator, lu: Value) -> Value:
    """For each matrix the place, counted from 1, of the first zero in the diagonal of U; 0 if there is none."""
    dims = b.shape(lu)
    if 0 in dims:
        return b.full(dims[:-2], 0, DType.i32)
    zero = b.compare("eq", _diagonal(b, b.stop_gradient(lu)), 0.0)
    first = b.cast(b.add("argmax", [b.cast(zero, DType.i32)], axis=-1), DType.i32)
    return b.where(b.reduce("any", zero, [len(dims) - 2]), b.binary("add", first, 1), 0)


def _cholesky_info(b: Translator, x: Value) -> Value:
    """For each matrix 1 if it has no factor, else 0."""
    dims = b.shape(x)
    if 0 in dims:
        return b.full(dims[:-2], 0, DType.i32)
    missing = b.cast(b.unary("is_nan", b.stop_gradient(x)), DType.i32)
    return b.reduce("max", missing, [len(dims) - 2, len(dims) - 1])


def _triangle(b: Translator, size: int, kind: str) -> Value:
    """bool [size, size]: how the number of a row compares with that of a column."""
    rows, columns = np.arange(size)[:, None], np.arange(size)[None, :]
    return b.constant({"gt": np.greater, "lt": np.less, "eq": np.equal}[kind](rows, columns))


# ---- Systems


@rule("linalg_inv", "inverse")
def _inv(b: Translator, a: Value) -> Value:
    return b.add("inverse", [a])


@rule("linalg_tensorinv")
def _tensorinv(b: Translator, a: Value, ind: int = 2) -> Value:
    dims = b.shape(a)
    size = math.prod(dims[:ind])
    return b.reshape(_inv(b, b.reshape(a, [size, size])), dims[ind:] + dims[:ind])


@rule("linalg_inv_ex")
def _inv_ex(b: Translator, a: Value, *, check_errors: bool = False) -> Any:
    lu, _ = b.add("lu", [b.stop_gradient(a)])
    return b.add("inverse", [a], on_singular=_POLICY[check_errors]), _lu_info(b, lu)


def _solved(b: Translator, a: Value, right: Value, left: bool, policy: str) -> tuple[Value, Value, Value]:
    dims, other = b.shape(a), b.shape(right)
    vectors = len(other) == 1 or other == dims[:-1]
    if vectors:
        right = b.expand(right, dims[:-1])
    elif len(other) < len(dims):  # not vectors to dense_solve either
        right = b.reshape(right, [1] * (len(dims) - len(other)) + other)
    if not left:
        if vectors:
            b.refuse("vectors with left=False; expected matrices")
        a, right = _swapped(b, a), _swapped(b, right)
    x, lu, perm = b.add("dense_solve", [a, right], [True, True, True], on_singular=policy)
    return (x if left else _swapped(b, x)), lu, perm


@rule("linalg_solve")
def _solve(b: Translator, a: Value, right: Value, *, left: bool = True) -> Value:
    return _solved(b, a, right, left, "error")[0]


@rule("_linalg_solve_ex")
def _solve_ex(b: Translator, a: Value, right: Value, *, left: bool = True, check_errors: bool = False) -> Any:
    x, _, _ = _solved(b, a, right, left, _POLICY[check_errors])
    lu, _ = b.add("lu", [b.stop_gradient(a)])
    return x, lu, None, _lu_info(b, lu)


def _triangular(b: Translator, a: Value, right: Value, upper: bool, transposed: bool, unit: bool) -> Value:
    return b.add("triangular_solve", [a, right], upper=upper, trans_a=transposed, unit_diagonal=unit)


@rule("linalg_solve_triangular")
def _solve_triangular(
    b: Translator, a: Value, right: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    if left:
        return _triangular(b, a, right, upper, False, unitriangular)
    return _swapped(b, _triangular(b, a, _swapped(b, right), upper, True, unitriangular))


@rule("triangular_solve")
def _triangular_solve(
    b: Translator, right: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    x = _triangular(b, a, right, upper, transpose, unitriangular)
    return x, b.expand(a, b.shape(x)[:-2] + b.shape(a)[-2:])


# ---- Factors


def _determinant_parts(b: Translator, a: Value) -> tuple[Value, Value]:
    """Sign, and the pivots."""
    size = b.shape(a)[-1]
    lu, perm = b.add("lu", [a])
    pivots = _diagonal(b, lu)
    # The order of rows is odd if an odd number of pairs is exchanged.
    dims = b.shape(perm)
    earlier, later = b.reshape(perm, [*dims, 1]), b.reshape(perm, [*dims[:-1], 1, size])
    exchanged = b.add("logical", [b.compare("gt", earlier, later), _triangle(b, size, "lt")], kind="and")
    count = b.reduce("sum", b.cast(exchanged, DType.i32), [len(dims) - 1, len(dims)])
    odd = b.compare("eq", b.binary("mod", count, 2), 1)
    return b.where(odd, -1.0, 1.0, a.dtype), pivots


@rule("_linalg_det")
def _linalg_det(b: Translator, a: Value) -> Any:
    return b.add("det", [a]), None, None


@rule("_linalg_slogdet")
def _linalg_slogdet(b: Translator, a: Value) -> Any:
    order, pivots = _determinant_parts(b, a)
    last = [len(b.shape(pivots)) - 1]
    signs = b.reduce("prod", b.unary("sign", b.stop_gradient(pivots)), last)
    logs = b.reduce("sum", b.unary("log", b.unary("abs", pivots)), last)
    return b.binary("mul", order, signs), logs, None, None


@rule("linalg_lu")
def _lu(b: Translator, a: Value, *, pivot: bool = True) -> Any:
    dims = b.shape(a)
    if not pivot:
        b.refuse("pivot=False; expected True")
    if dims[-1] != dims[-2]:
        b.refuse(f"matrices of {dims[-2]} by {dims[-1]}; expected square ones")
    size = dims[-1]
    lu, perm = b.add("lu", [a])
    zero = b.cast(0.0, a.dtype)
    below = _triangle(b, size, "gt")
    one = b.where(_triangle(b, size, "eq"), 1.0, zero, a.dtype)
    lower, upper = b.where(below, lu, one), b.where(below, zero, lu)
    # Row i of the product is row perm[i] of a.
    at = b.compare("eq", b.reshape(perm, [*dims[:-2], 1, size]), b.reshape(b.iota(size, DType.i32), [size, 1]))
    return b.cast(at, a.dtype), lower, upper


def _column(b: Translator, x: Value, k: int) -> Value:
    return b.narrow(x, len(b.shape(x)) - 1, k, 1)


def _check_swaps(b: Translator, size: int) -> None:
    if size > _MOST_SWAPS:
        b.refuse(f"pivots of {size} rows; expected at most {_MOST_SWAPS}")


def _pivots_of(b: Translator, perm: Value) -> Value:
    """The rows that LAPACK exchanges with row 1, 2, ..., counted from 1, for an order of rows."""
    size = b.shape(perm)[-1]
    _check_swaps(b, size)
    if not size:
        return perm
    places = b.iota(size, DType.i32)
    rows, found = b.expand(places, b.shape(perm)), []
    for k in range(size):
        here = b.compare("eq", rows, _column(b, perm, k))
        found.append(b.reduce("sum", b.where(here, places, 0), [len(b.shape(perm)) - 1], True))
        rows = b.where(here, _column(b, rows, k), rows)
        rows = b.where(b.compare("eq", places, k), _column(b, perm, k), rows)
    return b.binary("add", b.add("concat", found, axis=-1), 1)


def _perm_of(b: Translator, pivots: Value) -> Value:
    """The inverse of _pivots_of()."""
    size = b.shape(pivots)[-1]
    _check_swaps(b, size)
    if not size:
        return pivots
    places = b.iota(size, DType.i32)
    rows, found = b.expand(places, b.shape(pivots)), []
    for k in range(size):
        here = b.compare("eq", places, b.binary("sub", _column(b, pivots, k), 1))
        found.append(b.reduce("sum", b.where(here, rows, 0), [len(b.shape(pivots)) - 1], True))
        rows = b.where(here, _column(b, rows, k), rows)
    return b.add("concat", found, axis=-1)


def _lu_factors(b: Translator, a: Value, pivot: bool, policy: str) -> tuple[Value, Value]:
    dims = b.shape(a)
    if not pivot or dims[-1] != dims[-2]:
        b.refuse("factors without pivots, or of matrices that are not square; expected neither")
    lu, perm = b.add("lu", [a], on_singular=policy)
    return lu, _pivots_of(b, perm)


@rule("linalg_lu_factor")
def _lu_factor(b: Translator, a: Value, *, pivot: bool = True) -> Any:
    return _lu_factors(b, a, pivot, "error")


@rule("linalg_lu_factor_ex")
def _lu_factor_ex(b: Translator, a: Value, *, pivot: bool = True, check_errors: bool = False) -> Any:
    lu, pivots = _lu_factors(b, a, pivot, "error" if check_errors else "keep")
    return lu, pivots, _lu_info(b, lu)


@rule("linalg_lu_solve")
def _lu_solve(
    b: Translator, lu: Value, pivots: Value, right: Value, *, left: bool = True, adjoint: bool = False
) -> Value:
    if len(b.shape(right)) < len(b.shape(lu)):
        b.refuse("a matrix for a batch of factors; expected a batch")
    perm = _perm_of(b, pivots)
    if left:
        return b.add("lu_solve", [lu, perm, right], trans_a=adjoint)
    return _swapped(b, b.add("lu_solve", [lu, perm, _swapped(b, right)], trans_a=not adjoint))


def _factor(b: Translator, a: Value, upper: bool, policy: str) -> Value:
    y = b.add("cholesky", [_swapped(b, a) if upper else a], on_singular=policy)
    return _swapped(b, y) if upper else y


@rule("linalg_cholesky")
def _linalg_cholesky(b: Translator, a: Value, *, upper: bool = False) -> Value:
    return _factor(b, a, upper, "error")


@rule("cholesky")
def _cholesky(b: Translator, a: Value, upper: bool = False) -> Value:
    return _factor(b, a, upper, "error")


@rule("linalg_cholesky_ex")
def _cholesky_ex(b: Translator, a: Value, *, upper: bool = False, check_errors: bool = False) -> Any:
    y = _factor(b, a, upper, _POLICY[check_errors])
    return y, _cholesky_info(b, y)


@rule("cholesky_solve")
def _cholesky_solve(b: Translator, right: Value, a: Value, upper: bool = False) -> Value:
    return _triangular(b, a, _triangular(b, a, right, upper, upper, False), upper, not upper, False)


@rule("cholesky_inverse")
def _cholesky_inverse(b: Translator, a: Value, upper: bool = False) -> Value:
    one = b.expand(b.cast(_triangle(b, b.shape(a)[-1], "eq"), a.dtype), b.shape(a))
    return _cholesky_solve(b, one, a, upper)
