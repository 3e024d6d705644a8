"""How warm the processor is and whether it slows itself down, from what Linux shows of a board's sensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ZONES = Path("/sys/class/thermal")
THROTTLED = Path("/sys/devices/platform/soc/soc:firmware/get_throttled")  # Raspberry Pi: bits in hexadecimal
HOT = 80.0  # degrees Celsius: here a Raspberry Pi begins to slow down
_UNDERVOLTED, _SLOWED, _WAS_UNDERVOLTED, _WAS_SLOWED = 1 << 0, 0b1110, 1 << 16, 0b1110 << 16


@dataclass(frozen=True, slots=True)
class Thermal:
    """The warmest sensor, in degrees Celsius, and the sentences that a Raspberry Pi's firmware would say."""

    warmest: float
    sensor: str
    complaints: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        said = "; ".join(self.complaints)
        hot = "it slows down from here on: give it a fan or a heat sink" if self.warmest >= HOT else ""
        return "; ".join(part for part in (said, hot) if part)


def thermal(zones: Path = ZONES, throttled: Path = THROTTLED) -> Thermal | None:
    """The board's sensors; None where it has no temperature."""
    readings = [reading for zone in sorted(zones.glob("thermal_zone*")) if (reading := _reading(zone)) is not None]
    if not readings:
        return None
    warmest, sensor = max(readings)
    return Thermal(warmest, sensor, tuple(_complaints(throttled)))


def _reading(zone: Path) -> tuple[float, str] | None:
    try:
        degrees = int((zone / "temp").read_text()) / 1000
        name = (zone / "type").read_text().strip()
    except (OSError, ValueError):
        return None
    return (degrees, name) if -40 < degrees < 150 else None  # sensors that are switched off give nonsense


def _complaints(throttled: Path) -> list[str]:
    try:
        bits = int(throttled.read_text(), 16)
    except (OSError, ValueError):
        return []
    said = []
    if bits & (_UNDERVOLTED | _WAS_UNDERVOLTED):
        said.append("the power supply is too weak" + ("" if bits & _UNDERVOLTED else " at times") + ": use the board's own")
    if bits & _SLOWED:
        said.append("the processor is slowed down right now")
    elif bits & _WAS_SLOWED:
        said.append("the processor has been slowed down since it was started")
    return said
