"""What every typed shape has, and how PyTorch cuts an op into pieces for the cores of a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from placer.pricing.ops import SUFFIX, Effort, Op, row_of

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
    #: The fields that say how an accelerator's kernel walks its operands: elements; rows, channels, results or a table;
    #: the innermost loop, a window or the width of an index; three flags. "" where the shape has no such field.
    WALK: ClassVar[tuple[str, ...]] = ()

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

    def cut(self, work: Work) -> Cut:
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

    def launches(self, work: Work) -> float:
        """Kernels on an accelerator that the call stands for at the least."""
        return 1.0

    @property
    def walk(self) -> tuple[float, ...]:
        """The values of ``WALK``: three amounts, 1 where there is none, and three flags."""
        return tuple(
            float(getattr(self, name)) if name else usual for name, usual in zip(self.WALK, _NO_WALK, strict=True)
        )


#: What stands for a field that a shape does not have: an amount of one, no flag.
_NO_WALK = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)


class Place(NamedTuple):
    """What the step around an op call says of it: features of every family.

    Attributes:
        footprint: bytes of parameters, gradients, optimizer state and activations of the step.
        kinds: different ops of the step. The code of a few stays in the nearest caches.
        previous: bytes that the op before moved through the caches, rounded to a power of two. The framework's code
            around a tiny op runs several times slower after a large one.
        reuse_distance: of the op's own code, in bytes moved, rounded likewise.
        kept: whether the result outlives its phase, so that its memory is fresh.
        recording: whether autograd builds its graph around the op.
        repeated: whether an operand is expanded (``work.repeats``).
        evicted: share of the code around the op, and of its own, that other code has evicted from the caches.
        first: whether no op of the same name ran before in the step. Its code is fetched in every step.
    """

    footprint: float
    kinds: float = 1.0
    previous: float = 0.0
    reuse_distance: float = 0.0
    kept: float = 0.0
    recording: float = 0.0
    repeated: float = 0.0
    evicted: float = 0.0
    first: float = 0.0


#: Of these, the amounts, which are compared on a log scale, and the flags and shares.
PLACE_SIZES, PLACE_FLAGS = Place._fields[:4], Place._fields[4:]


@dataclass(frozen=True, slots=True)
class Work:
    """One op call in the terms of its family. ``flops`` counts a multiply-add as two, ``bytes`` reads and writes.

    ``op`` is the op's name, with a suffix where its operands select another kernel (see ``work.kernel_of``).
    ``dtype`` is that of its floating-point numbers, ``float32+bool`` where operands of another dtype are converted
    first.
    """

    family: str
    op: str
    dtype: str
    flops: float
    bytes: float
    shape: Shape
    place: Place
    #: What the table of ops says of the call; None of an op of which it does not.
    effort: Effort | None = None
    #: Loads that follow each other in the busiest thread of an accelerator.
    loads: float = 0.0
    #: Bytes of the largest result that the op makes anew.
    fresh: float = 0.0
    #: Numbers beyond the usual share of which a core guesses wrong whether they are drawn.
    misses: float = 0.0

    @property
    def row(self) -> Op:
        """The op's row in the table."""
        return row_of(self.op)

    @property
    def suffix(self) -> str:
        """The suffix of its kernel; "" of most."""
        return self.op.partition(SUFFIX)[2]

    @property
    def features(self) -> tuple[float, ...]:
        """FLOPs, bytes, the sizes of its shape and place, then their flags: see ``feature_names``."""
        of_shape, sizes, of_place = features(self.shape), len(size_names(type(self.shape))), len(PLACE_SIZES)
        return (
            self.flops,
            self.bytes,
            *of_shape[:sizes],
            *self.place[:of_place],
            *of_shape[sizes:],
            *self.place[of_place:],
        )

    @property
    def updated_alone(self) -> bool:
        """Whether an accelerator updates a tensor by kernels of its own, not those of all tensors."""
        return self.family == "optimizer" and self.effort is not None and self.effort.kernels > 1.0


_names_of: dict[tuple[object, ...], tuple[str, ...]] = {}


def _names(shape: type[Shape], *kinds: str) -> tuple[str, ...]:
    """Names of the features of some kinds, kept for each type of shape."""
    names = _names_of.get((shape, *kinds))
    if names is None:
        known = [each for each in fields(shape) if each.default is MISSING]
        of_kinds: list[str] = []
        for kind in kinds:
            of_kinds += [each.name for each in known if each.type == kind]
        names = _names_of[(shape, *kinds)] = tuple(of_kinds)
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
