"""Schemas of keys made at runtime (guarantee §12.1)."""

from gateway.api.openapi.schemas import FLAG, NUMBER, TEXT, WHOLE, Schema, many, obj, or_null, ref

TIME: Schema = {"type": "string", "format": "date-time"}
ROLES = many({"enum": ["user", "viewer", "admin"]})
SAID = ("name", "owner", "project")
LIMITS = ("rpm", "tpm", "concurrent")


def key_schemas() -> dict[str, Schema]:
    """What may be said of a key, and what is shown of one."""
    paged = {"first_id": or_null(TEXT), "last_id": or_null(TEXT), "has_more": FLAG}
    return {
        "KeyFields": _fields(),
        "KeyBudget": _budget(),
        "KeyLimits": obj("What is null is not limited.", **{name: or_null(WHOLE) for name in LIMITS}),
        "KeyContext": _context(),
        "Key": _key("What is known of a key."),
        "NewKey": _key("A key with what its holder sends; nobody can read that again.", key=TEXT),
        "Keys": obj(
            "Keys made at runtime, the latest in front, and behind them those of the configuration.",
            "object data first_id last_id has_more",
            object={"const": "list"},
            data=many(ref("Key")),
            **paged,
        ),
        "Rotation": obj(
            "For how long the key before counts.",
            grace_seconds={**NUMBER, "minimum": 0, "maximum": 604_800, "default": 0},
        ),
    }


def _parts() -> dict[str, Schema]:
    return {
        "roles": ROLES,
        "models": many(TEXT),
        "budgets": many(ref("KeyBudget")),
        "limits": ref("KeyLimits"),
        "context": ref("KeyContext"),
    }


def _fields() -> Schema:
    named = {
        **dict.fromkeys(SAID, TEXT),
        "tenant": TEXT,
        "expires_at": TIME,
        "retention_days": NUMBER,
        "file_bytes": WHOLE,
    }
    fields = {name: or_null(schema) for name, schema in (named | _parts()).items()}
    return {**obj("What may be said of a key.", **fields), "additionalProperties": False}


def _budget() -> Schema:
    period: Schema = {"enum": ["day", "week", "month", "total"]}
    return obj("A sum for a period, in days of UTC.", "usd", usd=NUMBER, period=period, hard=FLAG)


def _context() -> Schema:
    return obj(
        "What holds for its requests where they say nothing else.",
        "",
        "max_input_tokens:whole cite:flag",
        recall={"enum": ["auto", True, False]},
        mode={"enum": ["auto", "simple", "off"]},
        planning={"enum": ["auto", "always", "never"]},
        memory={"enum": ["extracts", "summary", "both"]},
        economy={"enum": ["auto", "observe", "off"]},
    )


def _key(description: str, **more: Schema) -> Schema:
    times = ("expires_at", "created_at", "updated_at", "rotated_at", "revoked_at")
    fields = {
        "id": TEXT,
        "object": {"const": "gateway.key"},
        "source": {"enum": ["runtime", "configuration", "token"]},
        **{name: or_null(TEXT) for name in (*SAID, "hint", "created_by")},
        "tenant": TEXT,
        **_parts(),
        **{name: or_null(TIME) for name in times},
        "retention_days": or_null(NUMBER),
        "file_bytes": or_null(WHOLE),
        **more,
    }
    return obj(description, " ".join(fields), **fields)
