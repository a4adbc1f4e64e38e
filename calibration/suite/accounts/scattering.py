"""The scattering transform of signals: wavelets, moduli and averages, computed in the Fourier domain (Andén 2014).

The filters and the order of operations are those of Kymatio 0.1: a complex value is two reals in the last dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Width of the average at scale 1, and how many widths of a wavelet must lie below the new Nyquist frequency before its
#: output is subsampled.
_SIGMA, _WIDTHS = 0.1, 5.0
#: A Gaussian window of width s ends where it is a thousandth: after 3.72 s. Kymatio pads three windows on each side.
_WINDOW = 3 * 3.72


class Wavelet(NamedTuple):
    """Centre and width in cycles per sample, and the largest power of two its output can be subsampled by."""

    centre: float
    width: float
    octave: int


def wavelets(scale: int, per_octave: int) -> list[Wavelet]:
    """From the highest frequency down: a fixed number per octave down to the width of the average, then evenly."""
    factor = 2.0 ** (-1.0 / per_octave)
    relative = (1.0 - factor) / (1.0 + factor) / math.sqrt(math.log(2.0))
    narrowest = _SIGMA / 2**scale
    centre = max(1.0 / (1.0 + 2.0 ** (3.0 / per_octave)), 0.35)
    found = []
    while centre * relative > narrowest:
        found.append(Wavelet(centre, centre * relative, _octave(centre, centre * relative)))
        centre *= factor
    lowest = found[-1].centre
    for i in range(1, per_octave):
        centre = lowest * (per_octave - i) / per_octave
        found.append(Wavelet(centre, narrowest, _octave(centre, narrowest)))
    return found


def _octave(centre: float, width: float) -> int:
    return math.floor(-math.log2(min(centre + _WIDTHS * width, 0.5))) - 1


class Scattering(nn.Module):
    """Both orders: (batch, 2^length) to (batch, coefficients, 2^(length - scale)).

    ``per_octave``: wavelets of the first order; the second has one.
    """

    def __init__(self, length: int, scale: int, per_octave: int) -> None:
        super().__init__()
        self.scale, self.kept = scale, 2 ** (length - scale)
        samples = 2**length
        window = _WINDOW * 2**scale / (2 * math.pi * _SIGMA)
        padded = 2 ** math.ceil(math.log2(samples + 2 * window))
        self.pads = ((padded - samples) // 2, padded - samples - (padded - samples) // 2)
        self.first, self.second = wavelets(scale, per_octave), wavelets(scale, 1)
        frequencies = torch.fft.fftfreq(padded)
        for i, wavelet in enumerate(self.first):
            self.register_buffer(f"first{i}", _bump(frequencies, wavelet.centre, wavelet.width))
        for i, wavelet in enumerate(self.second):
            self._register_coarser(f"second{i}", _bump(frequencies, wavelet.centre, wavelet.width))
        self._register_coarser("average", _bump(frequencies, 0.0, _SIGMA / 2**scale))

    def _register_coarser(self, name: str, spectrum: Tensor) -> None:
        """A filter for signals that are subsampled by each power of two."""
        for octave in range(self.scale + 1):
            self.register_buffer(f"{name}_{octave}", spectrum.view(2**octave, -1).sum(dim=0))

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x[:, None], self.pads, mode="reflect")
        spectrum = _fourier(torch.stack([x, torch.zeros_like(x)], dim=-1))
        found = [self._averaged(spectrum, 0)]
        for i, wavelet in enumerate(self.first):
            octave = wavelet.octave
            one = self._modulus(spectrum, self.get_buffer(f"first{i}"), octave)
            found.append(self._averaged(one, octave))
            for j, slower in enumerate(self.second):
                if slower.octave > octave:
                    two = self._modulus(one, self.get_buffer(f"second{j}_{octave}"), slower.octave - octave)
                    found.append(self._averaged(two, slower.octave))
        return torch.cat(found, dim=1)

    def _modulus(self, spectrum: Tensor, filtered: Tensor, octaves: int) -> Tensor:
        """The spectrum of the modulus of a filtered and subsampled signal."""
        signal = _fourier(_subsampled(spectrum * filtered[:, None], octaves), inverse=True)
        modulus = torch.zeros_like(signal)
        modulus[..., 0] = (signal[..., 0] * signal[..., 0] + signal[..., 1] * signal[..., 1]).sqrt()
        return _fourier(modulus)

    def _averaged(self, spectrum: Tensor, octave: int) -> Tensor:
        """The average of a signal that is subsampled by ``2^octave``, without its padding."""
        filtered = spectrum * self.get_buffer(f"average_{octave}")[:, None]
        signal = _fourier(_subsampled(filtered, self.scale - octave), inverse=True)[..., 0]
        start = self.pads[0] // 2**self.scale
        return signal[..., start : start + self.kept]


def _bump(frequencies: Tensor, centre: float, width: float) -> Tensor:
    """A Morlet wavelet's spectrum, or a Gaussian's where the centre is 0."""
    bump = torch.exp(-((frequencies - centre) ** 2) / (2 * width**2))
    if centre == 0.0:
        return bump
    low = torch.exp(-(frequencies**2) / (2 * width**2))
    return bump - bump[0] / low[0] * low


def _subsampled(spectrum: Tensor, octaves: int) -> Tensor:
    """The spectrum (..., frequencies, 2) of a signal of which one sample in ``2^octaves`` is kept."""
    coarser: Tensor = spectrum.unflatten(-2, (2**octaves, -1)).mean(dim=-3)
    return coarser


def _fourier(x: Tensor, *, inverse: bool = False) -> Tensor:
    values = torch.view_as_complex(x)
    return torch.view_as_real(torch.fft.ifft(values) if inverse else torch.fft.fft(values))
