"""Compiled functions that run without the interpreter's lock, and call C functions."""

from typing import Any

from llvmlite import ir
from numba import njit, types

# Compiles a function that only compiled functions call.
inner = njit(nogil=True, error_model='numpy', no_cpython_wrapper=True)


def kept(function: Any) -> Any:
  """Compiles a function for Python, and keeps the result on disk if possible."""
  options = {'nogil': True, 'error_model': 'numpy'}
  try:
    return njit(cache=True, **options)(function)
  except RuntimeError:  # No directory is writable.
    return njit(**options)(function)


def c_call(result: Any, *arguments: Any) -> Any:
  """Returns the result of an intrinsic that calls the C function at an address.

  Args:
    result: Numba's type of the C function's result.
    *arguments: Numba's types of its arguments.
  """

  def generate(context, builder, signature, values):
    function, *values = values
    kinds = [ir.IntType(argument.bitwidth) for argument in arguments]
    kind = ir.FunctionType(ir.IntType(result.bitwidth), kinds)
    address = builder.inttoptr(function, kind.as_pointer())
    return builder.call(address, values)

  return result(types.int64, *arguments), generate
