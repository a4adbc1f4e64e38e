"""The kind of device a step is traced for: most steps run the same ops everywhere, some do not."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceKind:
    """``name`` is torch's (``cpu``, ``cuda``). ``others`` gets the kinds that turn out to run other ops.

    A region of ``torch.autocast`` takes effect on one kind of device, and some kernels exist on one kind: for each of
    ``others`` the step is traced once more. What a reader should know of the reason is its value, else "".
    """

    name: str = "cpu"
    others: dict[str, str] = field(default_factory=dict)

    def differs(self, kind: str, note: str = "") -> None:
        """The step runs other ops on ``kind`` than on the CPU."""
        self.others.setdefault("cpu" if kind == self.name else kind, note)
