"""What every typed shape has, and how PyTorch cuts an op into pieces for the cores of a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from placer.pricing.ops import Effort, Op

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.tracing import OpCall, TensorSpec

#: Elements below which a loop stays on one core (``at::internal::GRAIN_SIZE``), whatever the number of threads.
GRAIN = 32768
#: The same of rows that are exponentiated, of windows, and of functions from a vector math library (SoftMaxKernel.cpp
#: and UnaryOpsKernel.cpp in ATen/native/cpu).
FINE_GRAIN = 2048
#: float32 numbers in a vector register of AVX-512, and channels in a block of oneDNN's layouts.
REGISTER = 16
#: FLOPs of a matrix product that is worth a thread to MKL, OpenBLAS and oneDNN.
PRODUCT_GRAIN = 2.0 * 40**3
#: Bytes of a number.
ITEM = 4


class OpWork(Protocol):
    """What shapes ask of the work that they are the shape of (``placer.pricing.work.Work``)."""

    @property
    def flops(self) -> float: ...
    @property
    def bytes(self) -> float: ...
    @property
    def dtype(self) -> str: ...
    @property
    def row(self) -> Op: ...
    @property
    def suffix(self) -> str: ...
    @property
    def effort(self) -> Effort | None: ...
    @property
    def updated_alone(self) -> bool: ...


class Cut(NamedTuple):
    """How an op is cut: into how many pieces at the most, in how many parallel regions one after the other.

    ``always``: the regions are started even where one core gets all there is. ``teams``: threads of each region that is
    run by a team of its own size, which may be smaller than that of all threads. ``serial``: share of the op that one
    core does.
    """

    pieces: float
    regions: float = 1.0
    always: bool = False
    teams: tuple[float, ...] = ()
    serial: float = 0.0


ONE_PIECE = Cut(1.0)


class Walk(NamedTuple):
    """How an accelerator's kernel walks its operands.

    ``numel`` elements, then what else sets it: ``second``, the rows, channels, results or the table, and ``inner``, the
    innermost loop, a window or the width of an index.
    """

    numel: float
    second: float = 1.0
    inner: float = 1.0
    strided: bool = False
    broadcast: bool = False
    flag: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What one op call works on, in named numbers, which are read once from the call.

    Sizes are ``float`` (elements, unless their comments say otherwise), flags ``bool``. Fields without a default are
    the features that calls of a family are compared by: sizes first, then flags.
    """

    #: FLOPs of an element of ``numel``, where that is all there is to count.
    FLOPS_EACH: ClassVar[float] = 0.0
    #: Sizes of which a core does a share, and those of which it does one at the least.
    SHARED: ClassVar[tuple[str, ...]] = ()
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        """The shape of a call, of which ``op`` is the row in the table. Raises IndexError or ValueError of others."""
        return cls()

    @property
    def flops(self) -> float:
        """Arithmetic, a multiply-add counted as two."""
        return float(self.FLOPS_EACH * getattr(self, "numel", 0.0))

    def traffic(self, call: OpCall) -> float:
        """Bytes that the call reads and writes: all operands and results, each once."""
        return operand_bytes(call)

    def cut(self, work: OpWork) -> Cut:
        """How torch cuts the op for several cores."""
        return ONE_PIECE

    def share(self, cores: float) -> Shape:
        """The shape of what one of so many cores does."""
        smaller = {name: getattr(self, name) / cores for name in self.SHARED}
        smaller |= {name: max(getattr(self, name) / cores, 1.0) for name in self.SHARED_FROM_ONE}
        return replace(self, **smaller)

    def share_bytes(self, moved: float, cores: float) -> float:
        """Bytes of that share, of which ``self`` is the shape, where the whole op moves ``moved``."""
        return moved / cores

    @property
    def ops_inside(self) -> int:
        """How many ops the call stands for at the least: more than one where an op is kept whole."""
        return 1

    @property
    def variant(self) -> str:
        """The name of a group of shapes that run in kernels of their own, and are priced as another op."""
        return ""

    def launches(self, work: OpWork) -> float:
        """Kernels on an accelerator that the call stands for at the least."""
        return 1.0

    @property
    def walk(self) -> Walk:
        """How a kernel walks it: by the first two sizes."""
        first, second, *_ = (*features(self)[: len(size_names(type(self)))], 1.0, 1.0)
        return Walk(first, second, strided=getattr(self, "strided", False))


_names_of: dict[tuple[object, ...], tuple[str, ...]] = {}


def _names(shape: type[Shape], *kinds: str) -> tuple[str, ...]:
    """Names of the features of some kinds, kept for each type of shape."""
    names = _names_of.get((shape, *kinds))
    if names is None:
        known = [each for each in fields(shape) if each.default is MISSING]
        names = tuple(each.name for kind in kinds for each in known if each.type == kind)
        _names_of[(shape, *kinds)] = names
    return names


def size_names(shape: type[Shape]) -> tuple[str, ...]:
    """Names of the features that are amounts, compared on a log scale."""
    return _names(shape, "float")


def flag_names(shape: type[Shape]) -> tuple[str, ...]:
    """Names of the features that are flags."""
    return _names(shape, "bool")


def features(shape: Shape) -> tuple[float, ...]:
    """The values of all features: sizes first, then flags as 0 or 1."""
    return tuple([float(getattr(shape, name)) for name in _names(type(shape), "float", "bool")])


def of_features(shape: type[Shape], sizes: Iterable[float], flags: Iterable[float]) -> Shape:
    """The shape that has these features: the inverse of ``features``."""
    values: dict[str, Any] = dict(zip(size_names(shape), sizes, strict=True))
    values |= {name: bool(flag) for name, flag in zip(flag_names(shape), flags, strict=True)}
    return shape(**values)


def operand_bytes(call: OpCall) -> float:
    """Bytes that all operands and results move, each once."""
    return float(sum(t.touched_bytes for t in call.inputs) + sum(t.touched_bytes for t in call.outputs))


def largest(specs: tuple[TensorSpec, ...]) -> int:
    """Elements of the largest tensor; 0 where there is none."""
    return max((t.numel for t in specs), default=0)


def is_index(spec: TensorSpec) -> bool:
    """Whether a tensor holds indices or a mask, by its dtype."""
    return spec.dtype in ("int64", "int32", "bool", "uint8")


def has_true_argument(call: OpCall) -> bool:
    """Whether an argument is True: ``transposed`` of a convolution, ``training`` of a normalization. 1 is not True."""
    return any(argument is True for argument in call.args)


def cut(elements: float, grain: float = GRAIN) -> float:
    """Pieces that a loop over so many elements is cut into."""
    return max(math.ceil(elements / grain), 1)


def pieces_of_products(flops: float) -> float:
    """Pieces of matrix products of so many FLOPs together."""
    return max(flops / PRODUCT_GRAIN, 1.0)


def padded(size: float) -> float:
    """How much larger a dimension is once it is rounded up to whole registers: a factor of 1 or more."""
    return math.ceil(size / REGISTER) * REGISTER / size if size > 0 else 1.0


def ragged(*sizes: int) -> bool:
    """Whether one of these is no multiple of a register; a size of 1 has kernels of its own and does not count."""
    return any(size % REGISTER for size in sizes if size > 1)
