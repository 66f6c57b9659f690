"""The faults of a message, as SQL: in one column's value, so that the others can still be read, or in the whole message."""

from __future__ import annotations

import json
import re

from frazil.config.columns import TEXTS, unrepresentable
from frazil.config.spec import Column, TableSpec
from frazil.config.sql import identifier, literal
from frazil.dms.layout import COMMIT_TIME

NUMBER = r"\s*:\s*(-0|-?[0-9]+[.eE])"
MESSAGE, THEN = "\x01", "\x02"
"""The first begins the description of a fault that concerns the whole message; the second separates the parts of `_label`."""
FAULT = f"substring_index(corrupt, '{THEN}', 1)"
_ANOTHER = r'\\}\\s*\\{\\s*"[^"\\\\]*"\\s*:'
"""The start of another message in the same value: quotes inside a text are escaped."""

CROSSES = (
    "an update of the key, and messages are spread over partitions by it: let DMS use partition-key-type schema-table"
)
SPREAD = (
    "changes of a row are spread over partitions, which loses their order: let DMS use partition-key-type schema-table"
)


def is_typed(column: Column) -> bool:
    """Tell whether raw rows hold a column's times as typed values."""
    return column.dms_type == "DATETIME" and column.lake != "string" and not column.replace


def replaced_number(column: Column, text: str, kind: str) -> dict[str, str]:
    """Return {condition: value}, in SQL, for number texts that the column's `replace` names: JSON has no such numbers."""
    if column.dms_type != "NUMERIC":
        return {}
    patterns = unrepresentable(column)
    values = {n: "null" if new is None else literal(new) for n, new in column.replace}
    return {f"{text} rlike {literal(patterns[n])}": f"cast({new} as {kind})" for n, new in values.items()}


def _odd_texts(names: dict[str, str], value: dict[str, str], label: dict[str, str]) -> str:
    """Return SQL branches for texts that Spark does not keep as written; `names` and values of the columns with text.

    A number in place of a text is parsed as a double. It changes if it has decimals or an exponent (as a text it begins
    below `:`). Half of a surrogate pair is no character and becomes a question mark.
    """
    marks = {c: json.dumps(n, ensure_ascii=False) for c, n in names.items()}
    quoted = {c: [literal(f'{m}:{tab}"') for tab in ("", "\t")] for c, m in marks.items()}
    numbers = [f"({value[c]} < ':' and not contains(value, {a}) and not contains(value, {b}))" for c, (a, b) in quoted.items()]  # fmt: skip
    alone = r"\\[uU][dD][89abAB]..(?!\\[uU][dD][c-fC-F])|(?<!\\[uU][dD][89abAB]..)\\[uU][dD][c-fC-F]"
    asked = " or ".join(f"contains({value[c]}, '?')" for c in names)
    halves = f"({asked}) and value rlike {literal(alone)}"
    found = [f"value rlike {literal(re.escape(m) + NUMBER)} then {label[c]}" for c, m in marks.items()]
    found = f"case {' '.join(f'when {f}' for f in found)} end"
    told = f"'{MESSAGE}half of a surrogate pair, which is no character'"
    return f"when {halves} then {told} when {' or '.join(numbers)} then {found}"


def wrong_sql(spec: TableSpec, names: dict[str, str], spread: bool) -> str:
    """Return the SQL of a message's fault: a column (`_label`) if the others can be read, or MESSAGE and the reason.

    `d{i}` are the columns' parsed values, `a{i}` those in raw rows, `o{i}` the old ones. `t` has all values as texts,
    for messages in which some value does not have its type.
    """
    at = {c: i for i, c in enumerate(spec.names)}
    label = {c: _label(spec.column(c), n) for c, n in names.items()}
    near = r"contains(value, '}{') or contains(value, '}\n{')"  # cheaper than the pattern
    found = [f"broken or m.data is null or (({near}) and value rlike '{_ANOTHER}') then '{MESSAGE}'"]
    if spread and spec.key:
        moved = " or ".join(f"o{spec.identity.index(k)} <> d{at[k]}" for k in spec.key if k in names)
        found.append(f"spread in ('transaction-id', 'attribute-name') then {literal(MESSAGE + SPREAD)}")
        found.append(f"spread = 'primary-key' and ({moved or 'false'}) then {literal(MESSAGE + CROSSES)}")
    text = {c: f"t.data.{identifier(n)}" for c, n in names.items()}
    known = {c: list(replaced_number(spec.column(c), text[c], "decimal")) for c in names}
    unfit = " ".join(
        f"when {' and not '.join([f'd{at[c]} is null and {text[c]} is not null', *known[c]])} then {label[c]}"
        for c in names
    )
    declared = " or ".join(condition for some in known.values() for condition in some)
    fine = f" and not coalesce(({declared}) and case {unfit} end is null, false)" if declared else ""
    found.append(f"m.corrupt is not null{fine} then case {unfit} else '{MESSAGE}' end")
    found.append(f"committed is not null and at is null then '{COMMIT_TIME}'")
    for c in (spec.column(c) for c in names):
        if is_typed(c):
            found.append(f"a{at[c.name]} is null and d{at[c.name]} is not null then {label[c.name]}")
        elif c.dms_type.startswith("REAL"):
            found.append(
                f"abs(d{at[c.name]}) = double('infinity') and instr(value, 'Infinity') = 0 then {label[c.name]}"
            )
    texts = {c: n for c, n in names.items() if spec.column(c).dms_type in TEXTS | {"TIME"}}
    odd = _odd_texts(texts, {c: f"d{at[c]}" for c in texts}, label) if texts else ""
    return f"case {' '.join(f'when {f}' for f in found)} {odd} end"


def _label(column: Column, name: str) -> str:
    """Return the SQL that identifies a column: its name, its name in messages, its type."""
    return literal(THEN.join((column.name, name, column.type)))


def reason_sql(spec: TableSpec) -> str:
    """Return the SQL of the reason why a message is `corrupt`, without masked values; `raw` is the message."""
    hidden = ", ".join(literal(c.name) for c in spec.columns if c.mask)
    name, kind = (f"substring_index(substring_index(corrupt, '{THEN}', {n}), '{THEN}', -1)" for n in (2, 3))
    shown = f"concat('\\'', get_json_object(cast(raw as string), concat('$[\\'data\\'][\\'', {name}, '\\']')), '\\'')"
    shown = f"if({FAULT} in ({hidden}), 'a masked value', {shown})" if hidden else shown
    junk = "'a message that cannot be read, with columns that are masked or left out'" if spec.hides else (
        "left(concat('not JSON as DMS writes it: ', cast(raw as string)), 300)"
    )  # fmt: skip
    when = "get_json_object(cast(raw as string), '$.metadata.commit-timestamp')"
    return (
        f"case when corrupt = '{MESSAGE}' then {junk} when startswith(corrupt, '{MESSAGE}') then substring(corrupt, 2) "
        f"when corrupt = '{COMMIT_TIME}' then concat('commit timestamp \\'', {when}, '\\' is not yyyy-MM-ddTHH:mm:ss.SSSSSSZ') "
        f"else concat('column \\'', {FAULT}, '\\': ', left({shown}, 100), ' does not fit ', {kind}) end"
    )
