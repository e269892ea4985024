"""Check a document against a JSON Schema, for the parts of JSON Schema that pydantic writes for us."""

from __future__ import annotations

from typing import Any

KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def disagreements(value: Any, schema: Any, root: Any, place: str = "document") -> list[str]:
    """List the places where a document does not fit the schema, keys that the schema lacks included."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in schema:
        found = [disagreements(value, option, root, place) for option in schema["anyOf"]]
        return min(found, key=len)
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
        return [f"{place}: not {kind}"]
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return [f"{place}: {value!r} is not among the values"]
    if kind in ("integer", "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{place}: {value!r} is out of range"]
    if kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        return [
            line
            for number, (item, part) in enumerate(zip(value, items, strict=True))
            for line in disagreements(item, part, root, f"{place}.{number}")
        ]
    if kind != "object":
        return []
    fields = schema.get("properties", {})
    found = [f"{place}.{name}: missing" for name in schema.get("required", []) if name not in value]
    for name, item in value.items():
        part = fields.get(name, schema.get("additionalProperties"))
        if part is None or part is False:
            found.append(f"{place}.{name}: unknown")
        elif part is not True:
            found += disagreements(item, part, root, f"{place}.{name}")
    return found
