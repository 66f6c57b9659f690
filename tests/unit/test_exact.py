"""Exact values: `typed` against a judge of Python's own `decimal`, `fractions` and `datetime`."""

from __future__ import annotations

import random
import re
import struct
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from frazil.core.exact import arrow_type, typed
from frazil.core.masks import PATTERNS, lake_values
from frazil.settings.column import REPLACEABLE, Column

NUMBERS = ["boolean", "int", "bigint", "decimal(12,2)", "decimal(20,0)", "decimal(38,0)", "decimal(38,38)", "decimal(38,10)", "float", "double"]  # fmt: skip
KINDS = [*NUMBERS, "date", "timestamp", "timestamp_ntz", "binary", "string"]
WORDS = {**dict.fromkeys(["true", "t", "1", "y", "yes"], True), **dict.fromkeys(["false", "f", "0", "n", "no"], False)}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
MOMENT = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?):(\d\d?)(\.\d*)?\s*(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)
SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "day": 0}
FIRST_DAY, LAST_DAY, WIDE, UTC = -719_162, 2_932_896, Context(prec=99), ZoneInfo("UTC")


def judged(text: str, kind: str):
    """Return the value that a text has in a type of the lake; None: it has none."""
    bare = text.strip(" \t\n\v\f\r")
    if kind in ("string", "boolean"):
        return (None if "\ufffd" in text else text) if kind == "string" else WORDS.get(text.lower())
    if kind == "binary":
        digits = text[2:] if text[:2].lower() == "0x" else text
        return bytes.fromhex(digits) if re.fullmatch("([0-9a-fA-F]{2})*", digits) else None
    with suppress(ValueError, ArithmeticError):
        if kind == "date":
            return date(*map(int, bare.split("-"))) if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", bare) else None
        if kind.startswith("timestamp"):
            return moment(MOMENT.fullmatch(bare), UTC if kind == "timestamp" else None)
        found = NUMBER.fullmatch(bare)
        if kind in ("float", "double"):
            return real(bare, found, kind)
        if not found or ((number := Decimal(bare)) and not -(10**6) < number.adjusted() <= 40):
            return None
        number = number or Decimal(0)
        return None if found[2] and abs(Fraction(number)) > 2**53 else of_number(number, kind)


def of_number(number: Decimal, kind: str):
    precision, *scale = map(int, re.findall(r"\d+", kind)) if "decimal" in kind else [{"int": 31, "bigint": 63}[kind]]
    shifted = Fraction(number) * 10 ** (scale[0] if scale else 0)
    if scale:
        return Decimal(int(shifted)).scaleb(-scale[0], WIDE) if shifted.denominator == 1 and abs(shifted) < 10**precision else None  # fmt: skip
    return int(shifted) if shifted.denominator == 1 and -(2**precision) <= shifted < 2**precision else None


def real(text: str, found: re.Match | None, kind: str):
    if not found:
        return float(text) if re.fullmatch("nan|[+-]?inf(inity)?", text.lower()) else None
    near = float(text)
    if kind == "float":  # the nearest of the floats around the double, of which Python itself may choose the second
        exact, (bits,) = (
            Fraction(Decimal(text)) if 1e-60 < abs(near) < 3.3e38 else 0,
            struct.unpack("I", struct.pack("f", near)),
        )
        around = [struct.unpack("f", struct.pack("I", max(0, b)))[0] for b in (bits, bits - 1, bits + 1)]
        near = min((f for f in around if f * near >= 0), key=lambda f: abs(Fraction(f) - exact)) if exact else around[0]
    return None if abs(near) == float("inf") or (near == 0 and re.search("[1-9]", found[1])) else near


def moment(found: re.Match | None, zone: ZoneInfo | None):
    if not found or (found[8] and not zone) or (Fraction((found[7] or "0") + "0") * 10**6).denominator > 1:
        return None
    value = datetime(*map(int, found.groups()[:6]), int(Fraction((found[7] or "0") + "0") * 10**6), zone)
    hours, minutes = (int(found[8][1:3]), int((found[9] or "0").lstrip(":"))) if len(found[8] or "") > 1 else (0, 0)
    return None if hours > 23 or minutes > 59 else value - timedelta(hours=hours, minutes=minutes) * (-1 if found[8] and found[8][0] == "-" else 1)  # fmt: skip


def random_text(dice: random.Random) -> str:
    digits = "".join(dice.choices("0123456789", k=dice.choice((1, 2, 5, 9, 10, 18, 19, 28, 38, 40))))
    day = f"{dice.choice((0, 1, 1582, 1969, 2024, 2023, 9999)):04d}-{dice.randint(0, 13):02d}-{dice.randint(0, 32):02d}"
    clock = f"{dice.choice('T ')}{dice.randint(0, 24):02d}:{dice.randint(0, 60):02d}:{dice.randint(0, 60):02d}"
    fraction = "." + "".join(dice.choices("0123456789", k=dice.randint(0, 9))) + "0" * dice.randint(0, 4)
    zone = dice.choice(("", "", "", "Z", "+02:00", "-0530", " +01", "+25:00"))
    text = dice.choice((
        digits, f"-{digits}", f"+{digits}", digits[:9] + fraction, digits + fraction, fraction, f"{digits[:5]}.{digits}", f"{digits}.000", day, day + clock,
        f"{dice.choice('+-')}{digits[0]}.{digits}e{dice.choice('+-')}{dice.randint(0, 60):02d}", f"0.{'0' * dice.randint(0, 40)}{digits}", f"{digits}ab",
        f"{digits[:3]}e{dice.choice((-2 * 10**9, -400, -60, -46, -3, 3, 15, 20, 38, 39, 308, 400))}", dice.choice(("nan", "inf", "-Infinity", "-nan", "0.0", "-0", "0e9", "0e99")),
        dice.choice(("true", "F", "YES", "no", "1", "0", "", "a\ufffd", "Zürich", "0x", "٣", "1_0")), f"0x{digits}", day + clock + fraction + zone, day + clock + zone,
    ))  # fmt: skip
    if dice.random() < 0.15:
        text = dice.choice(("", " ", "\t")) + text + dice.choice(("", " "))
    if dice.random() < 0.2:
        at = dice.randint(0, len(text))
        text = text[:at] + dice.choice("0123456789+-.eExXZT:_ naf") + text[at + dice.randint(0, 1) :]
    return text


def compare(values: pa.Array, kind: str, wanted: list, shown: list | None = None) -> None:
    """Require the wanted values; the mask must name what is null and was none."""
    found, misfit = typed(values, arrow_type(kind))
    assert found.type == arrow_type(kind)
    pairs = [*zip(values.to_pylist() if shown is None else shown, found.to_pylist(), wanted, strict=True)]
    assert not (wrong := [p for p in pairs if repr(p[1]) != repr(p[2])]), (values.type, kind, wrong[:9])
    lacking = [v is not None and e is None for v, _, e in pairs]
    assert (misfit.to_pylist() if misfit is not None else [False] * len(lacking)) == lacking


@pytest.mark.parametrize("kind", KINDS)
def test_random_texts_have_the_values_that_python_finds(kind):
    dice = random.Random(kind)
    pairs = [(t, judged(t, kind)) for t in (random_text(dice) for _ in range(2500))]
    for some in (pairs, [p for p in pairs if p[1] is not None], [], *([p] for p in pairs[:300])):
        texts, wanted = [t for t, _ in some], [w for _, w in some]
        compare(pa.array(texts, pa.string()), kind, wanted)
        compare(pa.array([None, *texts, "x", None], pa.large_string())[1 : len(texts) + 1], kind, wanted)
    compare(pa.array([t for text, _ in pairs for t in (text, None)]), kind, [v for _, w in pairs for v in (w, None)])


def of_value(value, kind: str):
    """Return the value that a number has in a type of the lake."""
    is_real = isinstance(value, float)
    number = digits(value) if is_real else Decimal(value)
    if kind == "boolean":
        return bool(value) if value in (0, 1) else None
    if kind in ("float", "double"):
        near = float(value)
        same = is_real or digits(near) == number
        return near if same and (kind == "double" or near != near or struct.unpack("f", struct.pack("f", near))[0] == near) else None  # fmt: skip
    return None if number is None else of_number(number, kind)


def digits(real: float) -> Decimal | None:
    """Return the number that a real stands for: beyond 2^53 its own, else its shortest digits."""
    return None if abs(real) == float("inf") or real != real else Decimal(real if abs(real) > 2**53 else repr(real))


REALS = [0.0, 1.0, 12.5, 0.1, -1e-7, 1e15, 2.0**53, 2.0**53 + 2, 2.0**62, 1e22, 1e300, 5e-324, float("nan"), float("inf"), -float("inf"), None]  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_other_types_have_equal_values(kind):
    dice = random.Random(kind)
    columns = [pa.array([*REALS, *(round(dice.uniform(1, 1e6), n % 9) for n in range(200))], source) for source in (pa.float32(), pa.float64())]  # fmt: skip
    for bits in (8, 16, 32, 64):
        for source, least, most in ((f"int{bits}", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), (f"uint{bits}", 0, 2**bits - 1)):  # fmt: skip
            numbers = [least, most, None, *(n for n in (2**53, 2**53 + 1, 2**31) if n <= most)]
            numbers += [dice.randint(least, most) >> dice.randint(0, bits - 1) for _ in range(99)]
            columns += [pa.array(chosen, getattr(pa, source)()) for chosen in (numbers, [0, 1, 2, 7])]
    for values in columns:
        compare(values, kind, [None if n is None else of_value(n, kind) for n in values.to_pylist()])


def test_decimals_of_each_precision_and_scale_are_exact_in_each_other():
    dice = random.Random(7)
    for n in range(800):
        (p, s), (q, t) = ((n, dice.randint(0, n)) for n in (dice.randint(1, 38), dice.randint(1, 38)))
        if n % 2:  # where digits and new scale are more than 38, Arrow's own cast returns other values
            p, s, q, t = dice.randint(18, 30), dice.randint(0, 4), 38, dice.randint(24, 38)
        written = [Decimal(dice.choice((-1, 1)) * dice.randint(0, 10 ** dice.randint(1, p) - 1)).scaleb(-s, WIDE) for _ in range(6)]  # fmt: skip
        kind = f"decimal({q},{t})"
        for values in (written, [v for v in written if of_number(v, kind) is not None], *([v] for v in written)):
            for source in (pa.decimal128(p, s), pa.decimal256(p, s)):
                compare(pa.array(values, source), kind, [of_number(v, kind) for v in values])
            compare(pa.array([f"{v:f}" for v in values], pa.string()), kind, [of_number(v, kind) for v in values])
        for kind in ("bigint", "double", "float"):
            compare(pa.array(written, pa.decimal128(p, s)), kind, [of_value(v, kind) for v in written])


def of_time(n: int, unit: str, kind: str):
    """Return the value that a number of units since 1970 has in a type of the lake."""
    second = SECOND[unit] or Fraction(1, 86_400)
    days, rest = divmod(n, 86_400 * second)
    if not FIRST_DAY <= days <= LAST_DAY or (kind == "date" and rest):
        return None
    micros, day = Fraction(rest * 10**6, 1) / second, date.min + timedelta(days=int(days) - FIRST_DAY)
    if kind == "string":
        digits = len(str(SECOND[unit])) - 1
        clock = f" {timedelta(seconds=int(rest // second))!s:0>8}" + (f".{rest % second:0{digits}d}" if digits else "")
        return str(day) + (clock if unit != "day" else "")
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC if kind == "timestamp" else None)
    return day if kind == "date" else moment + timedelta(microseconds=int(micros)) if micros.denominator == 1 else None


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz", "string"])
@pytest.mark.parametrize("unit", SECOND)
def test_days_and_moments_are_kept_or_refused(unit, kind):
    dice, day, most = random.Random(unit), SECOND[unit] * 86_400 or 1, 2 ** (63 if SECOND[unit] else 31)
    first, end = FIRST_DAY * day, (LAST_DAY + 1) * day
    numbers = [first, first - 1, end - 1, end, 0, -1, 1, 999, 1000, day, most - 1, -most + 1, most // 2]
    numbers += [dice.randint(max(first, -most), min(end, most) - 1) // step * step for step in (1, 1000, day) for _ in range(50)]  # fmt: skip
    numbers = [n for n in numbers if -most <= n < most]
    for chosen in (numbers, [n for n in numbers if of_time(n, unit, kind) is not None]):
        for source in [pa.timestamp(unit), pa.timestamp(unit, "UTC")] if SECOND[unit] else [pa.date32()]:
            values = pa.array(chosen, pa.int64() if SECOND[unit] else pa.int32()).view(source)
            compare(values, kind, [of_time(n, unit, kind) for n in chosen], chosen)


@pytest.mark.parametrize("source", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")])
def test_a_time_of_day_is_its_text_and_none_lies_outside_of_a_day(source):
    second = SECOND[source.unit]
    numbers = [0, 3723 * second, 86_400 * second - 1, 86_400 * second, 86_400 * second + 1, -1, None]
    last = "23:59:59" + ("" if second == 1 else f".{second - 1}")
    values = pa.array(numbers, pa.int32() if source.bit_width == 32 else pa.int64()).view(source)
    compare(values, "string", ["00:00:00", "01:02:03", last, "24:00:00", None, None, None], numbers)


TO_LAST = {"zero_date": None, "before_year_1": "0001-01-01", "after_year_9999": "9999-12-31 23:59:59.999999", "infinity": "9999-12-31", "-infinity": None}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "replace", "values", "wanted", "misfits"),
    [
        ("DATETIME", TO_LAST, ["0000-00-00 00:00:00", "2024-00-15 00:00:00", "-4712-01-01 00:00:00", "0000-01-01 00:00:00", "12024-01-01 00:00:00", "infinity", "-Infinity", "yesterday", "2024-05-06 07:08:09", None],
         [None, None, datetime.min, datetime.min, datetime.max, datetime(9999, 12, 31), None, None, datetime(2024, 5, 6, 7, 8, 9), None], [7]),
        ("DATETIME", TO_LAST, pa.array([-(2**60), 2**60, 0]).view(pa.timestamp("us", "UTC")), [datetime.min, datetime.max, datetime(1970, 1, 1)], []),
        ("DATE", {"zero_date": "1970-01-01", "before_year_1": None, "infinity": "9999-12-31"}, ["0000-00-00", "0001-02-03 BC", "-4712-01-01", "10000-01-01", "Infinity", "-Infinity"],
         [date(1970, 1, 1), None, None, None, date(9999, 12, 31), None], [3, 5]),
        ("NUMERIC(10,2)", {"NaN": None, "infinity": "99999999.99"}, ["NaN", "Infinity", "-inf", "1.505", "nano"], [None, Decimal("99999999.99"), None, None, None], [2, 3, 4]),
        ("NUMERIC(10,2)", {"NaN": "0", "-infinity": "too much"}, pa.array([float("nan"), -float("inf"), 1.5]), [Decimal("0.00"), None, Decimal("1.50")], [1]),
        ("WSTRING(9)", {"U+FFFD": "?"}, ["a\ufffdb", "c"], ["a?b", "c"], []), ("WSTRING(9)", {"U+FFFD": "\ufffd"}, pa.array([b"a\xff", b"c"]), ["a\ufffd", "c"], []),
        ("WSTRING(9)", {"U+FFFD": None}, ["a\ufffdb", "c"], [None, "c"], []), ("WSTRING(9)", {}, ["a\ufffdb", "c"], [None, "c"], [0]),
    ],
)  # fmt: skip
def test_values_that_a_type_lacks_become_what_the_column_declares(kind, replace, values, wanted, misfits):
    assert PATTERNS.keys() == REPLACEABLE.keys()
    found, misfit = lake_values(Column(name="v", type=kind, replace=replace), pa.array(values) if isinstance(values, list) else values)  # fmt: skip
    assert found.to_pylist() == wanted
    assert [i for i, lacks in enumerate(misfit.to_pylist() if misfit is not None else []) if lacks] == misfits
