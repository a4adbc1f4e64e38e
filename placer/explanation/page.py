"""Templates of pages that open offline, in the report's style. Needs ``pip install torch-placer[report]``."""

from __future__ import annotations

from typing import Any

from placer.errors import PlacerError


def template(name: str, package: str = "placer.explanation") -> Any:
    """A jinja2 template in the folder ``report`` of a package; it may include the report's style sheet.

    Raises PlacerError without jinja2.
    """
    try:
        import jinja2
    except ImportError:
        raise PlacerError("the html report needs jinja2; run: pip install 'torch-placer[report]'") from None
    folders = [jinja2.PackageLoader(each, "report") for each in dict.fromkeys((package, "placer.explanation"))]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(name)
