"""Shared by all charts: style, axes, and how a figure is displayed."""

from __future__ import annotations

import base64
import functools
import io
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from frazil_old.report.render import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#3b6ea5", "#e0a030", "#5aa469", "#b0506a", "#7a6aa8", "#4aa3a3", "#8c6d46", "#707070", "#c06030")
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)
"""Seconds between the ticks of a time axis."""
_STYLE = {
    "figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "font.size": 10, "axes.titleweight": "bold", "axes.titlesize": 11, "axes.titlelocation": "left", "legend.frameon": False,
}  # fmt: skip


def styled(draw):
    """Draw in Frazil's style, whatever the notebook has set."""

    @functools.wraps(draw)
    def inside(*arguments):
        import matplotlib

        with matplotlib.rc_context(_STYLE):
            return draw(*arguments)

    return inside


def new_figure(title: str, height: float = 3.6):
    """Return a figure and its axes; no window is opened."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def label(axes, text: str, at: tuple, shift: tuple[float, float], **style) -> None:
    """Write a text at a place of the data, shifted by points."""
    axes.annotate(text, at, textcoords="offset points", xytext=shift, **{"fontsize": 9, **style})


def clock(axes, label: str = "committed at (UTC)") -> None:
    """Show times on the horizontal axis, each no longer than needed."""
    import matplotlib.dates as dates

    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel(label)


def seconds_axis(axes, values, axis: str = "y") -> None:
    """Use a logarithmic axis if latencies span more than two orders of magnitude, else one that starts at zero."""
    low, high = max(values.min(), 1e-3), values.max()
    if high / low > 100:
        getattr(axes, f"set_{axis}scale")("log")
    else:
        getattr(axes, f"set_{axis}lim")(0, high * 1.15 or 1)
    durations(getattr(axes, f"{axis}axis"))


def durations(axis) -> None:
    """Label the ticks of an axis in seconds as durations in readable units."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, MultipleLocator

    class Minor(LogFormatter):
        """Ticks between powers of ten, if the axis spans less than one and a half of them."""

        def __call__(self, x, pos=None):
            return tick(x) if super().__call__(x, pos) else ""

    low, high = axis.get_view_interval()
    if axis.get_scale() == "linear" and 4 <= high - low <= 8 * STEPS[-1]:  # whole seconds, minutes or hours
        axis.set_major_locator(MultipleLocator(next(s for s in STEPS if high - low <= 8 * s)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: tick(x)))
    if axis.get_scale() == "log":
        axis.set_minor_formatter(Minor(minor_thresholds=(1, 0.4)))


def times(ms):
    """Return epoch milliseconds as UTC times for an axis."""
    import pandas as pd

    return pd.to_datetime(ms, unit="ms", utc=True)


def colour_of(tables) -> dict[str, str]:
    """Give each table the same colour in every chart."""
    return dict(zip(sorted(set(tables)), COLOURS * (len(set(tables)) // len(COLOURS) + 1), strict=False))


def span(seconds: float) -> str:
    """Format a duration: 0.35 s, 12.3 s, 4.2 min, 7.5 h, 3.1 days."""
    value, unit = _in_unit(seconds)
    return f"{value:.2f} s" if abs(seconds) < 1 else f"{value:,.1f} {unit}"


def tick(seconds: float) -> str:
    """Format a round duration: 0.5 s, 20 s, 5 min, 3 h, 12 days."""
    value, unit = _in_unit(seconds)
    return f"{float(f'{value:.3g}'):,g} {unit}" if seconds else "0"


def _in_unit(seconds: float) -> tuple[float, str]:
    """Return a duration in the largest unit of which it has at least two."""
    units = ((86_400, "days"), (3600, "h"), (60, "min"))
    size, unit = next(((n, u) for n, u in units if abs(seconds) >= 2 * n), (1, "s"))
    return seconds / size, unit


class Chart:
    """A figure below its sentence, shown by a notebook without any backend or magic; None: nothing to draw.

    With a file, the figure is saved there as PNG, and the sentence next to it as text.
    """

    def __init__(self, figure: Figure | None, file: Path | None = None, sentence: str = ""):
        self.figure, self.sentence = figure, sentence
        if figure is not None and file is not None:
            with suppress(OSError):  # a full or read-only disk: it is displayed anyway
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(file, dpi=150)
                Path(file).with_suffix(".txt").write_text(sentence, encoding="utf-8")

    def __repr__(self) -> str:
        if self.figure is None:
            return self.sentence or "nothing to draw: too few commits in this window have the figures"
        return f"{self.sentence}\n(a chart)".strip()

    def _repr_html_(self) -> str:
        sentence = self.sentence if self.figure is not None else repr(self)
        return render("chart.html.j2", sentence=sentence, picture=base64.b64encode(self.png()).decode())

    def png(self) -> bytes:
        """Return the picture; no bytes if there is nothing to draw."""
        out = io.BytesIO()
        if self.figure is not None:
            self.figure.savefig(out, format="png", dpi=110)
        return out.getvalue()
