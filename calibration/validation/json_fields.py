"""Reads the values of a JSON object by name, each checked, with its place in the document named in the error."""

from __future__ import annotations

from typing import Any

from placer.profile import json_values


class JsonFields:
    """A JSON object with exactly these ``names``. Whatever does not fit raises ``json_values.UnfitError``."""

    def __init__(self, item: Any, where: str, names: tuple[str, ...], *, outermost: bool = False) -> None:
        """``where`` the object is in the document; the values of the ``outermost`` one are named without it."""
        self._values = json_values.json_object(item, where, names)
        self._prefix = "" if outermost else f"{where}."

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def place(self, name: str) -> str:
        """Where in the document the value is."""
        return f"{self._prefix}{name}"

    def text(self, name: str) -> str:
        return json_values.text(self[name], self.place(name))

    def optional_text(self, name: str) -> str | None:
        return None if self[name] is None else self.text(name)

    def texts_by_name(self, name: str) -> dict[str, str]:
        found = json_values.json_object(self[name], self.place(name), None)
        return {key: json_values.text(value, f"{self.place(name)}.{key}") for key, value in found.items()}

    def boolean(self, name: str) -> bool:
        if type(self[name]) is not bool:
            raise json_values.UnfitError(f"{self.place(name)}: expected true or false")
        return bool(self[name])

    def integer(self, name: str, least: int) -> int:
        """A whole number of at least ``least``."""
        return json_values.integer(self[name], self.place(name), least)

    def optional_number(self, name: str) -> float | None:
        """A number from 0 on, or null."""
        return None if self[name] is None else json_values.number(self[name], self.place(name), 0.0)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers from 0 on."""
        listed = json_values.json_list(self[name], self.place(name))
        return tuple(json_values.number(value, self.place(name), 0.0) for value in listed)

    def numbers_by_name(self, name: str) -> dict[str, float]:
        """An object of numbers from 0 on."""
        return json_values.numbers(self[name], self.place(name), 0.0)
