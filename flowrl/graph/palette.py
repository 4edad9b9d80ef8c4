"""The colours of a picture: calm, and apart for every kind of colour vision (tints of Okabe and Ito's blue, orange and green)."""

from __future__ import annotations

from dataclasses import dataclass

from flowrl.graph.records import Place

__all__ = ["GREY", "INK", "LINE", "MESSAGE", "PAPER", "SHADES", "Shade"]

PAPER = "#ffffff"
INK = "#1f2933"
GREY = "#52606d"
LINE = "#616e7c"
MESSAGE = "#9c4f86"


@dataclass(frozen=True, slots=True)
class Shade:
    """One place's colours: of its nodes, of their border, of the area behind them, of its title; `night` fills nodes on a dark page."""

    fill: str
    border: str
    area: str
    text: str
    night: str


SHADES: dict[Place, Shade] = {
    "driver": Shade(fill="#e1eefa", border="#4a90c2", area="#f7fafd", text="#00598c", night="#17374f"),
    "shards": Shade(fill="#fdebc8", border="#d08a10", area="#fffbf2", text="#855600", night="#4a3508"),
    "learner": Shade(fill="#d3efe4", border="#2a9d78", area="#f4fbf8", text="#00664a", night="#0f4636"),
}
