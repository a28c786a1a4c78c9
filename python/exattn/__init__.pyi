from typing import Any, Literal, Protocol, Sequence, Tuple, TypedDict, TypeVar, Union, overload

import numpy
from numpy.typing import NDArray

__version__: str
definition: str
__all__ = ["attention", "definition", "info", "sha256", "softmax"]

class _Dlpack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> Tuple[Any, int]: ...

# A buffer has no type of its own before Python 3.12.
_Array = Union[NDArray[Any], _Dlpack, memoryview, bytearray]
_Mask = Union[_Array, Tuple[_Array, _Array]]
_Integers = Union[int, Sequence[int], NDArray[Any]]
_Numbers = Union[Sequence[float], _Array]
_Flavour = Literal["exact", "fast"]
_Lanes = Literal["auto", "scalar", "sse2", "avx2", "avx512", "neon64", "avx512n"]
_FullyMasked = Literal["nan", "zero"]
_Floats = NDArray[numpy.float32]
_Out = TypeVar("_Out", NDArray[numpy.float32], memoryview, bytearray)

class _LanesInfo(TypedDict):
    built: bool
    cpu: bool
    os: bool
    exact: bool
    fast: bool
    width: int

class _Info(TypedDict):
    version: str
    definition: str
    processors: int
    lanes: dict[str, _LanesInfo]
    auto: dict[str, Union[str, None]]

@overload
def attention(q: _Array, k: _Array, v: _Array, *, mask: Union[_Mask, None] = None, causal: bool = False,
              q_offset: _Integers = 0, window: int = 0, sinks: Union[_Numbers, None] = None,
              alibi: Union[_Numbers, None] = None, softcap: float = 0.0, scale: Union[float, None] = None,
              flavour: _Flavour = "exact", lanes: _Lanes = "auto", kv_len: Union[_Integers, None] = None,
              enable_gqa: bool = True, fully_masked: _FullyMasked = "nan", return_lse: Literal[False] = False,
              out: None = None, threads: Union[int, None] = None) -> _Floats: ...
@overload
def attention(q: _Array, k: _Array, v: _Array, *, mask: Union[_Mask, None] = None, causal: bool = False,
              q_offset: _Integers = 0, window: int = 0, sinks: Union[_Numbers, None] = None,
              alibi: Union[_Numbers, None] = None, softcap: float = 0.0, scale: Union[float, None] = None,
              flavour: _Flavour = "exact", lanes: _Lanes = "auto", kv_len: Union[_Integers, None] = None,
              enable_gqa: bool = True, fully_masked: _FullyMasked = "nan", return_lse: Literal[False] = False,
              out: _Out, threads: Union[int, None] = None) -> _Out: ...
@overload
def attention(q: _Array, k: _Array, v: _Array, *, mask: Union[_Mask, None] = None, causal: bool = False,
              q_offset: _Integers = 0, window: int = 0, sinks: Union[_Numbers, None] = None,
              alibi: Union[_Numbers, None] = None, softcap: float = 0.0, scale: Union[float, None] = None,
              flavour: _Flavour = "exact", lanes: _Lanes = "auto", kv_len: Union[_Integers, None] = None,
              enable_gqa: bool = True, fully_masked: _FullyMasked = "nan", return_lse: Literal[True],
              out: None = None, threads: Union[int, None] = None) -> Tuple[_Floats, _Floats]: ...
@overload
def attention(q: _Array, k: _Array, v: _Array, *, mask: Union[_Mask, None] = None, causal: bool = False,
              q_offset: _Integers = 0, window: int = 0, sinks: Union[_Numbers, None] = None,
              alibi: Union[_Numbers, None] = None, softcap: float = 0.0, scale: Union[float, None] = None,
              flavour: _Flavour = "exact", lanes: _Lanes = "auto", kv_len: Union[_Integers, None] = None,
              enable_gqa: bool = True, fully_masked: _FullyMasked = "nan", return_lse: Literal[True],
              out: _Out, threads: Union[int, None] = None) -> Tuple[_Out, _Floats]: ...
@overload
def softmax(x: _Array, *, flavour: _Flavour = "exact", lanes: _Lanes = "auto", out: None = None,
            threads: Union[int, None] = None) -> _Floats: ...
@overload
def softmax(x: _Array, *, flavour: _Flavour = "exact", lanes: _Lanes = "auto", out: _Out,
            threads: Union[int, None] = None) -> _Out: ...
def sha256(array: _Array) -> str: ...
def info() -> _Info: ...
